// Sends packets through the load balancer. Packets begin at the IP header, both where they come and where they leave.
//
//   packets ─► lb_parse ─┬─ beats ──────────────────────► fifo ─► lb_rewrite ─► packets
//                        ├─ key ─► lb_lookup ─► route ─► fifo ──────┘
//                        └─ head ──────────────────────► fifo ──────┘
//
// s_*, m_*: streams of packets with valid and ready. With 512 bits, the first beat of a forwarded packet of more than 64 bytes leaves 49 or
//   50 cycles after it came if nothing stops it.
// write: changes one entry of either image per cycle. image: the image in which the packets are looked up whose keys are found from now on.
// m_mac: the MAC address of the member that a packet goes to, with every beat.
// is_empty: every packet that came is done.
// hold: no further packet may begin.
// done_valid: once for each packet, with its last beat. done, done_route: what happened to the packet. A packet that was shorter than its IP header
//   says has the cause NotIp in `done`.
module lb_path
  import lb_pkg::*;
  import lb_tables_pkg::*;
#(
    parameter int Width = 512,
    // Whether requests of ICMP leave the path with the cause Answered, and not as drops.
    parameter bit Answers = 0,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input write_t write,
    input logic image,
    input logic hold,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    output logic s_tready,
    output logic [Width-1:0] m_tdata,
    output logic [Bytes-1:0] m_tkeep,
    output logic m_tlast,
    output logic m_tuser,
    output logic m_tvalid,
    output logic [47:0] m_mac,
    input logic m_tready,
    output logic is_empty,
    output logic done_valid,
    output route_t done_route,
    output done_t done
);

  localparam int PacketBits = 7;
  localparam int BeatBits = 9;
  // The most beats or packets that can still enter a queue after s_tready fell.
  localparam int Slack = 8;

  // ------------------------------------------------------------------ room

  logic [BeatBits:0] beats;
  // The number of packets whose first beat came and that are not done. A packet may be done before its padding has come.
  logic [PacketBits:0] packets;
  // The next beat is the first one of a packet.
  logic is_first;
  logic comes;
  assign s_tready = !(hold && is_first) && beats < (BeatBits + 1)'((1 << BeatBits) - Slack) && packets < (PacketBits + 1)'((1 << PacketBits) - Slack);
  assign comes = s_tvalid && s_tready;
  always_ff @(posedge clk) begin
    packets <= packets + (PacketBits + 1)'(comes && is_first) - (PacketBits + 1)'(done_valid);
    if (comes) is_first <= s_tlast;
    if (rst) begin
      packets <= '0;
      is_first <= 1'b1;
    end
  end
  assign is_empty = packets == '0 && is_first;

  // ------------------------------------------------------------------ headers and beats

  logic [Width-1:0] cut_data;
  logic [Bytes-1:0] cut_keep;
  logic cut_last, cut_user, cut_valid, key_valid;
  key_t key;
  head_t head;
  lb_parse #(
      .Width(Width),
      .Answers(Answers)
  ) parse (
      .clk(clk),
      .rst(rst),
      .s_tdata(s_tdata),
      .s_tkeep(s_tkeep),
      .s_tlast(s_tlast),
      .s_tuser(s_tuser),
      .s_tvalid(comes),
      .m_tdata(cut_data),
      .m_tkeep(cut_keep),
      .m_tlast(cut_last),
      .m_tuser(cut_user),
      .m_tvalid(cut_valid),
      .key_valid(key_valid),
      .key(key),
      .head(head)
  );

  logic [Width-1:0] late_data;
  logic [Bytes-1:0] late_keep;
  logic late_last, late_user, late_valid, late_ready;
  fifo #(
      .Width(Width + Bytes + 2),
      .Bits(BeatBits)
  ) beat_queue (
      .clk(clk),
      .rst(rst),
      .in_valid(cut_valid),
      .in_data({cut_data, cut_keep, cut_last, cut_user}),
      .out_valid(late_valid),
      .out_ready(late_ready),
      .out_data({late_data, late_keep, late_last, late_user}),
      .count(beats)
  );

  // ------------------------------------------------------------------ routes

  route_t found, route;
  logic found_valid, found_image, route_valid, route_ready, route_image;
  lb_lookup lookup (
      .clk(clk),
      .rst(rst),
      .write(write),
      .image(image),
      .key_valid(key_valid),
      .key(key),
      .route_valid(found_valid),
      .route_image(found_image),
      .route(found)
  );

  logic [PacketBits:0] unused_routes, unused_heads;
  fifo #(
      .Width($bits(route_t) + 1),
      .Bits(PacketBits)
  ) route_queue (
      .clk(clk),
      .rst(rst),
      .in_valid(found_valid),
      .in_data({found, found_image}),
      .out_valid(route_valid),
      .out_ready(route_ready),
      .out_data({route, route_image}),
      .count(unused_routes)
  );

  head_t late_head;
  logic unused_head_valid;
  fifo #(
      .Width($bits(head_t)),
      .Bits(PacketBits)
  ) head_queue (
      .clk(clk),
      .rst(rst),
      .in_valid(key_valid),
      .in_data(head),
      .out_valid(unused_head_valid),
      .out_ready(route_ready && route_valid),
      .out_data(late_head),
      .count(unused_heads)
  );

  logic done_image, done_bad;
  logic [15:0] done_length;
  lb_rewrite #(
      .Width(Width)
  ) rewrite (
      .clk(clk),
      .rst(rst),
      .route_valid(route_valid),
      .route_ready(route_ready),
      .route(route),
      .route_image(route_image),
      .head(late_head),
      .s_tdata(late_data),
      .s_tkeep(late_keep),
      .s_tlast(late_last),
      .s_tuser(late_user),
      .s_tvalid(late_valid),
      .s_tready(late_ready),
      .m_tdata(m_tdata),
      .m_tkeep(m_tkeep),
      .m_tlast(m_tlast),
      .m_tuser(m_tuser),
      .m_tvalid(m_tvalid),
      .m_mac(m_mac),
      .m_tready(m_tready),
      .done_valid(done_valid),
      .done_route(done_route),
      .done_image(done_image),
      .done_length(done_length),
      .done_bad(done_bad)
  );

  always_comb begin
    done = '{
        is_v6: done_route.is_v6,
        has_header: done_route.has_header,
        is_v3: done_route.is_v3,
        tick: done_route.tick,
        cause: done_bad ? NotIp : done_route.cause,
        lb: done_route.lb,
        is_known: done_route.is_known,
        set: done_route.set,
        member: done_route.member,
        keeps_header: done_route.keeps_header,
        image: done_image,
        length: done_length
    };
  end

endmodule
