// Proves of `lb_rewrite` that every packet is done once, that the packets which are forwarded leave once and in order, that all bytes behind
// their headers leave unchanged and in their place, and that the output follows the rules of AXI4-Stream.
//
// The harness gives a number to each packet that is forwarded and to each of its beats. It follows one byte of one packet, which may be any.
//
// Assumed: the input's beats are legal, and a packet whose LB header is cut out has more bytes than this header. Valid and ready may rise and fall
// at any time.
module rewrite_packets
  import lb_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8,
    localparam int LaneBits = $clog2(Bytes),
    // The number of a beat in its packet. The highest number stands for all later beats, too.
    localparam int BeatBits = 10
) (
    input logic clk,
    input logic route_valid,
    input route_t route,
    input logic route_image,
    input head_t head,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    input logic m_tready,
    input logic chosen,
    input logic [BeatBits-1:0] any_beat,
    input logic [LaneBits-1:0] any_lane
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic route_ready, s_tready, m_tlast, m_tuser, m_tvalid, done_valid, done_image, done_bad;
  logic [47:0] unused_mac;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  logic [15:0] done_length;
  route_t done_route;
  lb_rewrite #(
      .Width(Width)
  ) dut (
      .clk(clk),
      .rst(!begun),
      .route_valid(route_valid),
      .route_ready(route_ready),
      .route(route),
      .route_image(route_image),
      .head(head),
      .s_tdata(s_tdata),
      .s_tkeep(s_tkeep),
      .s_tlast(s_tlast),
      .s_tuser(s_tuser),
      .s_tvalid(s_tvalid),
      .s_tready(s_tready),
      .m_tdata(m_tdata),
      .m_tkeep(m_tkeep),
      .m_tlast(m_tlast),
      .m_tuser(m_tuser),
      .m_tvalid(m_tvalid),
      .m_mac(unused_mac),
      .m_tready(m_tready),
      .done_valid(done_valid),
      .done_route(done_route),
      .done_image(done_image),
      .done_length(done_length),
      .done_bad(done_bad)
  );

  logic s_is_legal, m_is_legal, m_is_stable, unused_is_stable;
  stream_rules #(
      .Width(Width)
  ) s_rules (
      .clk(clk),
      .rst(!begun),
      .tdata(s_tdata),
      .tkeep(s_tkeep),
      .tlast(s_tlast),
      .tuser(s_tuser),
      .tvalid(s_tvalid),
      .tready(s_tready),
      .is_stable(unused_is_stable),
      .is_legal(s_is_legal)
  );
  stream_rules #(
      .Width(Width)
  ) m_rules (
      .clk(clk),
      .rst(!begun),
      .tdata(m_tdata),
      .tkeep(m_tkeep),
      .tlast(m_tlast),
      .tuser(m_tuser),
      .tvalid(m_tvalid),
      .tready(m_tready),
      .is_stable(m_is_stable),
      .is_legal(m_is_legal)
  );

  // ------------------------------------------------------------------ what the packet at the input is

  // The length of an LB header in bytes, and of the longest headers in front of it in words: IPv4 with all options, and UDP.
  localparam int Header = 16;
  localparam logic [5:0] MostHeaders = 6'd17;

  logic enters, leaves, first, is_forwarded, is_cut;
  logic [5:0] headers;
  assign enters = s_tvalid && s_tready;
  assign leaves = m_tvalid && m_tready;
  assign is_forwarded = dut.change2.route.cause == Pass;
  assign is_cut = !dut.change2.route.keeps_header;
  assign headers = 6'(dut.change2.head.udp) + 6'd2;
  always_ff @(posedge clk) begin
    if (enters) first <= s_tlast;
    if (!begun) first <= 1'b1;
  end

  logic has_rest;
  assign has_rest = Bytes > Header && s_tkeep[Header%Bytes];

  // ------------------------------------------------------------------ numbers of packets and beats

  typedef logic [BeatBits-1:0] number_t;
  typedef struct packed {
    logic [2:0] packet;
    number_t beat;
  } tag_t;

  function automatic tag_t after(tag_t tag, logic last);
    if (last) return '{tag.packet + 3'd1, '0};
    return '{tag.packet, tag.beat == '1 ? tag.beat : tag.beat + 1'b1};
  endfunction

  // The tags of the next beat that enters, of the beats in stages 3 and 4 and at the output, and of the next beat that leaves, which is counted
  // at the ports. Beats of packets that are dropped get no new tag.
  tag_t tag_in, tag3, tag4, tag_m, tag_out;
  always_ff @(posedge clk) begin
    if (enters) begin
      if (is_forwarded) tag_in <= after(tag_in, s_tlast);
    end
    if (!dut.valid3 || dut.leaves3) tag3 <= tag_in;
    if (!dut.valid4 || dut.leaves4) tag4 <= tag3;
    if (dut.runs) tag_m <= tag4;
    if (leaves) tag_out <= after(tag_out, m_tlast);
    if (!begun) {tag_in, tag_out} <= '0;
  end

  // The beats that must come behind those of the output, of stage 4 and of stage 3.
  logic forwards3;
  tag_t behind_m, behind4, behind3;
  assign forwards3 = dut.valid3 && !dut.is_dropped3;
  assign behind_m = m_tvalid ? after(tag_out, m_tlast) : tag_out;
  assign behind4 = dut.valid4 ? after(tag4, dut.last4) : behind_m;
  assign behind3 = forwards3 ? after(tag3, dut.last3) : behind4;

  function automatic logic [5:0] place_of(number_t beat);
    return beat >= number_t'(1024 / Width) ? 6'd32 : 6'(beat * (Width / 32));
  endfunction

  // The number of packets that came and are not done, and the number of routes that came and whose packets have not ended.
  logic [1:0] undone, routes;
  always_ff @(posedge clk) begin
    undone <= undone + 2'(enters && s_tlast) - 2'(done_valid);
    routes <= routes + 2'(route_valid && route_ready) - 2'(enters && s_tlast);
    if (!begun) {undone, routes} <= '0;
  end

  // ------------------------------------------------------------------ the byte that is followed

  // The place of the byte in its packet, and its place when it leaves.
  number_t beat, beat_out;
  logic [LaneBits-1:0] lane, lane_out;
  always_ff @(posedge clk) if (!begun) {beat, lane} <= {any_beat, any_lane};

  // The packet that is followed, its route, and the byte, if the packet is long enough to have it.
  logic follows, follows_cut, has_byte;
  logic [2:0] packet;
  logic [5:0] follows_headers;
  logic [7:0] followed;
  logic begins, is_here;
  assign begins = enters && first && is_forwarded && chosen && !follows;
  assign is_here = (begins || follows && is_forwarded && tag_in.packet == packet) && tag_in.beat == beat;
  always_ff @(posedge clk) begin
    if (begins) {follows, packet, follows_cut, follows_headers, has_byte} <= {1'b1, tag_in.packet, is_cut, headers, 1'b0};
    if (enters && is_here) {has_byte, followed} <= {s_tkeep[lane], s_tdata[lane*8+:8]};
    if (follows && leaves && m_tlast && tag_out.packet == packet) follows <= 1'b0;
    if (!begun) follows <= 1'b0;
  end

  // Whether the byte is behind the headers of its packet, and is not cut out.
  logic [BeatBits+LaneBits-1:0] position;
  logic is_behind;
  assign position = {beat, lane};
  assign is_behind = position >= (BeatBits + LaneBits)'({follows_headers, 2'b0}) + (follows_cut ? (BeatBits + LaneBits)'(Header) : '0);
  assign {beat_out, lane_out} = follows_cut ? position - (BeatBits + LaneBits)'(Header) : position;

  function automatic logic is_followed(tag_t tag);
    return follows && tag.packet == packet;
  endfunction

  function automatic logic holds(logic [Width-1:0] data, logic [Bytes-1:0] keep, logic [LaneBits-1:0] place);
    return keep[place] == has_byte && (!has_byte || data[place*8+:8] == followed);
  endfunction

  // ------------------------------------------------------------------ what is proved

  always_comb begin
    any_beat_has_number : assume (any_beat != '1);
    if (begun) begin
      legal_input : assume (s_is_legal);
      header_is_there : assume (!enters || !first || !s_tlast || !is_forwarded || !is_cut || has_rest);

      // What is at the input.
      route_stays : assert (first || dut.has2);
      place_is_kept : assert (first ? dut.place == '0 : !is_forwarded || dut.place == place_of(tag_in.beat));
      route_per_packet : assert (routes == 2'(dut.has1) + 2'(dut.has2));
      done_per_packet : assert (undone == 2'(dut.valid3 && dut.last3));

      // Stage 3 holds the last beat that came.
      if (dut.valid3) begin
        legal3 : assert ((dut.keep3 & ~(dut.keep3 << 1)) == Bytes'(1) && (dut.last3 || &dut.keep3));
        first3 : assert (first == dut.last3);
        same3 : assert (dut.last3 || {dut.is_cut3, dut.is_dropped3, dut.headers3} == {is_cut, !is_forwarded, headers});
        headers3 : assert (dut.headers3 <= MostHeaders);
        place3 : assert (dut.is_dropped3 || 6'(dut.at3) * 6'(Width / 32) == place_of(tag3.beat));
        followed3 :
        assert (dut.is_dropped3 || !is_followed(tag3) || {dut.is_cut3, dut.headers3} == {follows_cut, follows_headers});
        rest3 :
        assert (dut.is_dropped3 || !dut.is_cut3 || tag3.beat != '0 || !dut.last3 || Bytes > Header && dut.keep3[Header%Bytes]);
        byte3 :
        assert (dut.is_dropped3 || !is_followed(tag3) || tag3.beat != beat || !is_behind || holds(dut.data3, dut.keep3, lane));
        short3 : assert (dut.is_dropped3 || !is_followed(tag3) || !dut.last3 || tag3.beat >= beat || !has_byte);
      end

      // Stage 4 holds the beat in front of it.
      if (dut.valid4) begin
        legal4 : assert ((dut.keep4 & ~(dut.keep4 << 1)) == Bytes'(1) && (dut.last4 || &dut.keep4));
        in_order4 : assert (tag4 == behind_m);
        same4 :
        assert (dut.last4 || !dut.valid3 || {dut.is_cut3, dut.is_dropped3, dut.headers3} == {dut.is_cut4, 1'b0, dut.headers4});
        next4 :
        assert (dut.last4 || dut.valid3 || !first && {is_cut, is_forwarded, headers} == {dut.is_cut4, 1'b1, dut.headers4});
        headers4 : assert (dut.headers4 <= MostHeaders);
        place4 : assert (dut.place4 == place_of(tag4.beat));
        followed4 : assert (!is_followed(tag4) || {dut.is_cut4, dut.headers4} == {follows_cut, follows_headers});
        rest4 : assert (!dut.is_cut4 || !dut.last4 || Bytes > Header && dut.keep4[Header%Bytes]);
        byte4 : assert (!is_followed(tag4) || tag4.beat != beat || !is_behind || holds(dut.data4, dut.keep4, lane));
        short4 : assert (!is_followed(tag4) || !dut.last4 || tag4.beat >= beat || !has_byte);
      end
      // The beats of a packet whose LB header is cut out wait for each other.
      waits3 : assert (!forwards3 || !dut.is_cut3 || tag3.beat == '0 || dut.valid4 && !dut.last4);
      waits_in : assert (first || dut.valid3 || !is_forwarded || !is_cut || dut.valid4 && !dut.last4);
      in_order3 : assert (!forwards3 || tag3 == behind4);
      in_order_in : assert (tag_in.packet == behind3.packet && tag_in.beat == behind3.beat);
      in_packet : assert ((first || !is_forwarded) == (tag_in.beat == '0));

      // While the packet that is followed is inside, the stages hold its byte.
      beat_has_number : assert (beat != '1);
      followed_is_inside : assert (!follows || packet - tag_out.packet <= tag_in.packet - tag_out.packet);
      followed_is_open : assert (!follows || packet != tag_in.packet || !first && is_forwarded);
      followed_in :
      assert (
        !follows || packet != tag_in.packet || {is_cut, headers} == {follows_cut, follows_headers} && (tag_in.beat > beat || !has_byte));

      // What is at the output.
      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);
      if (m_tvalid) begin
        packets_leave_in_order : assert (tag_m == tag_out);
        byte_leaves : assert (!is_followed(tag_m) || tag_m.beat != beat_out || !is_behind || holds(m_tdata, m_tkeep, lane_out));
      end

      cut_byte_leaves :
      cover (leaves && is_followed(tag_m) && tag_m.beat == beat_out && is_behind && has_byte && follows_cut && beat > 1);
      byte_leaves_in_place :
      cover (leaves && is_followed(tag_m) && tag_m.beat == beat_out && is_behind && has_byte && !follows_cut && beat > 1);
      rest_is_merged : cover (leaves && m_tlast && follows && tag_out.beat == number_t'(1) && tag_in.packet == 3'd2);
      packet_is_dropped : cover (done_valid && done_route.cause != Pass && m_tvalid && !m_tready);
    end
  end

endmodule
