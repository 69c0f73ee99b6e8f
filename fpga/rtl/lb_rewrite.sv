// Changes the headers of packets so that they go to their members, and drops those that go nowhere. It changes addresses, ports, lengths, the
// TTL or hop limit, and checksums, and cuts the LB header out where the member does not want it.
//
//   route -> sums (2) -> beats with changed headers -> beats with all bytes behind the headers moved by 16 -> output
//
// Checksums are updated by what changes (RFC 1624). Lengths and hops change by constants, so that only the addresses, the port and the LB header
// have to be summed. A wrong checksum stays wrong. A UDP checksum of 0 means that there is none, and stays 0; a computed 0 is written as ffff.
//
// route, route_image, head: one of each per packet, in the order of the packets. They are taken together when route_valid and route_ready are high.
// s_*: packets without padding, with valid and ready. A packet waits until its route was taken.
// m_*: the packets that are forwarded, 3 cycles later. tuser is passed on. m_mac is the member's MAC address, with every beat. Back-pressure:
//   while m_tready is low, s_tready falls as soon as the stages are full.
// done_*: what happened to a packet. They come once for each packet, with its last beat.
//
// The module does the same as the Rust function ejfat::lb::rewrite, byte for byte.
module lb_rewrite
  import lb_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic route_valid,
    output logic route_ready,
    input route_t route,
    // The image in which the packet was looked up.
    input logic route_image,
    input head_t head,
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
    output logic done_valid,
    output route_t done_route,
    output logic done_image,
    output logic [15:0] done_length,
    // The packet was shorter than its IP header says.
    output logic done_bad
);

  localparam int Words = Width / 32;
  // Places from this one on are behind all headers, and are not told apart.
  localparam logic [5:0] BehindHeads = 6'd32;

  // What is written into the headers of a packet, and what its two checksums change by.
  typedef struct packed {
    route_t route;
    head_t head;
    logic [15:0] ip;
    logic [15:0] udp;
  } change_t;

  // ------------------------------------------------------------------ sums

  // The length of an LB header in bytes.
  localparam int Moved = 16;
  // What a checksum changes by when the TTL becomes one less, and when a length becomes 16 less: ~old + new, which is the same for every old
  // value.
  localparam logic [15:0] LessHop = 16'hfeff;
  localparam logic [15:0] LessLength = 16'hffef;

  logic has1, has2, takes1, takes2, is_over;
  route_t route1;
  logic image1;
  head_t head1;
  logic [19:0] ip1, udp1;
  change_t change2;
  logic image2;
  assign takes1 = !has1 || takes2;
  assign takes2 = !has2 || is_over;
  assign route_ready = takes1;
  always_ff @(posedge clk) begin
    if (takes1) begin
      has1 <= route_valid;
      {route1, image1, head1} <= {route, route_image, head};
      ip1 <= 20'(head.source) + 20'(route.address_sum) + 20'(LessHop) + (route.keeps_header ? 20'd0 : 20'(LessLength));
      udp1 <= 20'(head.source) + 20'(head.port) + 20'(route.address_sum) + 20'(route.port)
          + (route.keeps_header ? 20'd0 : 20'(head.header) + 20'(LessLength) + 20'(LessLength));
    end
    if (takes2) begin
      has2 <= has1;
      change2 <= '{route1, head1, fold(ip1), fold(udp1)};
      image2 <= image1;
    end
    if (rst) {has1, has2} <= '0;
  end

  // ------------------------------------------------------------------ words of headers

  function automatic logic [15:0] shorter(logic [15:0] length, logic is_cut);
    return is_cut ? length - 16'(Moved) : length;
  endfunction

  // The new value of a word of the packet. `place` is the number of the word, from 0 at the begin of the IP header. Words are in network order.
  function automatic logic [31:0] rewrite(logic [31:0] old, logic [5:0] place, change_t change);
    logic [31:0] result;
    logic is_cut;
    logic [15:0] checksum;
    is_cut = !change.route.keeps_header;
    result = old;
    if (place < 6'(change.head.udp)) begin
      if (change.head.is_v6) begin
        case (place)
          6'd1: result = {shorter(old[31:16], is_cut), old[15:8], old[7:0] - 8'd1};
          6'd2: result = change.head.destination[127:96];
          6'd3: result = change.head.destination[95:64];
          6'd4: result = change.head.destination[63:32];
          6'd5: result = change.head.destination[31:0];
          6'd6: result = change.route.address[127:96];
          6'd7: result = change.route.address[95:64];
          6'd8: result = change.route.address[63:32];
          6'd9: result = change.route.address[31:0];
          default: result = old;
        endcase
      end else begin
        case (place)
          6'd0: result = {old[31:16], shorter(old[15:0], is_cut)};
          6'd2: result = {old[31:24] - 8'd1, old[23:16], follow(old[15:0], change.ip)};
          6'd3: result = change.head.destination[31:0];
          6'd4: result = change.route.address[31:0];
          default: result = old;
        endcase
      end
    end else if (place == 6'(change.head.udp)) result = {old[31:16], change.route.port};
    else if (place == 6'(change.head.udp) + 6'd1) begin
      checksum = follow(old[15:0], change.udp);
      if (checksum == '0) checksum = '1;
      if (old[15:0] == '0) checksum = '0;
      result = {shorter(old[31:16], is_cut), checksum};
    end
    return result;
  endfunction

  function automatic logic [31:0] swap(logic [31:0] word);
    return {word[7:0], word[15:8], word[23:16], word[31:24]};
  endfunction

  // The number of a beat in its packet, and the place of its first word. Beats from number Behind on are not told apart.
  localparam int WordBits = $clog2(Words);
  localparam int AtBits = 6 - WordBits;
  localparam logic [AtBits-1:0] Behind = AtBits'(BehindHeads >> WordBits);
  logic [AtBits-1:0] at, at3, at4;
  logic [5:0] place, place4;
  assign place = {at, WordBits'(0)};
  assign place4 = {at4, WordBits'(0)};

  // A beat whose header words are changed, its number, and the place where the headers end.
  logic valid3, last3, user3, is_cut3, is_dropped3, leaves3;
  logic [Width-1:0] data3;
  logic [Bytes-1:0] keep3;
  logic [5:0] headers3;
  route_t route3;
  logic image3;
  logic [15:0] length3;
  logic takes;
  assign s_tready = has2 && (!valid3 || leaves3);
  assign takes = s_tvalid && s_tready;
  assign is_over = takes && s_tlast;
  always_ff @(posedge clk) begin
    if (takes) at <= s_tlast ? '0 : at >= Behind ? Behind : at + 1'b1;
    if (!valid3 || leaves3) begin
      valid3 <= takes;
      {keep3, last3, user3, at3} <= {s_tkeep, s_tlast, s_tuser, at};
      for (int i = 0; i < Words; i++) data3[i*32+:32] <= swap(rewrite(swap(s_tdata[i*32+:32]), place + 6'(i), change2));
      headers3 <= 6'(change2.head.udp) + 6'd2;
      is_cut3 <= !change2.route.keeps_header;
      is_dropped3 <= change2.route.cause != Pass;
      {route3, image3, length3} <= {change2.route, image2, change2.head.length};
    end
    if (rst) begin
      at <= '0;
      valid3 <= 1'b0;
    end
  end

  assign done_valid = valid3 && leaves3 && last3;
  assign done_route = route3;
  assign done_image = image3;
  assign done_length = length3;
  assign done_bad = user3;

  // ------------------------------------------------------------------ bytes behind the headers

  // The beat before it. If the LB header is cut out, it waits for the next beat of its packet, whose first 16 bytes move into it.
  logic valid4, last4, user4, is_cut4, leaves4, runs;
  logic [Width-1:0] data4;
  logic [Bytes-1:0] keep4;
  logic [47:0] mac4;
  logic [5:0] headers4;
  // needs4: the beat must wait for the next one. is_rest3: the next one is the last and has no bytes but those that move.
  logic needs4, is_rest3;
  assign runs = m_tready || !m_tvalid;
  assign needs4 = is_cut4 && !last4;
  assign is_rest3 = last3 && (Bytes == Moved || !keep3[Moved%Bytes]);
  assign leaves4 = valid4 && runs && (!needs4 || valid3);
  assign leaves3 = valid3 && (is_dropped3 || !valid4 || leaves4);

  // The bytes of both beats, moved by 16.
  logic [Width-1:0] both;
  logic [Bytes-1:0] kept;
  assign both = Width'({data3, data4} >> (8 * Moved));
  assign kept = Bytes'({needs4 ? keep3 : {Bytes{1'b0}}, keep4} >> Moved);

  always_ff @(posedge clk) begin
    if (!valid4 || leaves4) begin
      valid4 <= valid3 && !is_dropped3 && !(valid4 && needs4 && is_rest3);
      {data4, keep4, last4, user4, is_cut4, at4, headers4} <= {data3, keep3, last3, user3, is_cut3, at3, headers3};
      mac4 <= route3.mac;
    end
    if (runs) begin
      m_tvalid <= leaves4;
      m_mac <= mac4;
      m_tkeep <= is_cut4 ? kept : keep4;
      m_tlast <= last4 || needs4 && is_rest3;
      m_tuser <= last4 ? user4 : needs4 && is_rest3 && user3;
      for (int i = 0; i < Words; i++) begin
        m_tdata[i*32+:32] <= is_cut4 && place4 + 6'(i) >= headers4 ? both[i*32+:32] : data4[i*32+:32];
      end
    end
    if (rst) {valid4, m_tvalid} <= '0;
  end

endmodule
