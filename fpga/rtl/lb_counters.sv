// Counts what happened to packets, and remembers which ticks were forwarded.
//
// done_valid, done: what happened to a packet, as lb_path tells it. One packet per cycle; there is no back-pressure.
// horizons: ticks above the horizon of a load balancer are counted apart.
// take_*: reads a counter and sets it to 0. A request is taken when take_valid and take_ready are high; no packet is counted in that cycle. Its
//   answer comes 2 to 4 cycles later, with taken_valid. The next request must wait for it.
// newest, has_newest: the newest tick of each load balancer that was forwarded since it was read, 2 cycles after the packet was done.
//
// The counters are those of the Rust types ejfat::lb::LbCounters and DataPlane; lb_csr_pkg tells how they are numbered.
module lb_counters
  import lb_pkg::*;
  import lb_csr_pkg::*;
(
    input logic clk,
    input logic rst,
    input logic done_valid,
    input done_t done,
    input logic [Lbs-1:0][63:0] horizons,
    input logic take_valid,
    output logic take_ready,
    input kind_e take_kind,
    input logic [11:0] take_index,
    output logic taken_valid,
    output logic [191:0] taken,
    output logic [Lbs-1:0][63:0] newest,
    output logic [Lbs-1:0] has_newest
);

  localparam int ClassBits = 2;
  localparam int PacketBits = 1 + LbBits + ClassBits + 4;
  localparam int MembersBits = 1 + MemberBits + 1;
  localparam int SetsBits = 1 + LbBits + SetBits + 1;

  // ------------------------------------------------------------------ 1: what is counted

  logic valid1, is_sent1, is_ours1, counts_set1, v6_1, image1;
  logic [LbBits-1:0] lb1;
  logic [SetBits-1:0] set1;
  logic [MemberBits-1:0] member1;
  logic [63:0] tick1;
  logic [15:0] length1, sent1;
  logic [3:0] outcome1;
  class_e class1;
  always_ff @(posedge clk) begin
    valid1 <= done_valid && done.cause != Answered && !rst;
    is_ours1 <= done.cause != NotIp && done.cause != BadIp;
    is_sent1 <= done.cause == Pass;
    {v6_1, image1, lb1, set1, member1, tick1} <= {done.is_v6, done.image, done.lb, done.set, done.member, done.tick};
    length1 <= done.length;
    sent1 <= done.length - (done.keeps_header ? 16'd0 : 16'd16);
    outcome1 <= done.cause == Pass && done.keeps_header ? KeptHeader : done.cause;
    class1 <= !done.has_header || done.cause == BlockedSrc ? NoHeader : done.is_v3 ? HeaderV3 : HeaderV2;
    // A packet from an address that no set allows does not count for the set of its tick.
    counts_set1 <= done.has_header && (done.cause != BlockedSrc || done.is_known);
  end

  // ------------------------------------------------------------------ memories

  // A request is taken when no packet is being counted. So all memories have counted the same packets before it.
  logic takes;
  assign take_ready = !valid1 && !done_valid;
  assign takes = take_valid && take_ready;

  logic unused_packets_ready, unused_members_ready, unused_sets_ready;
  logic packets_valid, members_valid, sets_valid;
  traffic_t packets_taken, members_taken, sets_taken;
  counters #(
      .Bits(PacketBits)
  ) packets (
      .clk(clk),
      .rst(rst),
      .add_valid(valid1),
      .add_index(is_ours1 ? {v6_1, lb1, class1, outcome1} : {1'b0, LbBits'(0), NoHeader, outcome1}),
      .add_bytes(length1),
      .take_valid(takes && take_kind == OfPackets),
      .take_ready(unused_packets_ready),
      .take_index(take_index[PacketBits-1:0]),
      .taken_valid(packets_valid),
      .taken(packets_taken)
  );

  counters #(
      .Bits(MembersBits)
  ) members (
      .clk(clk),
      .rst(rst),
      .add_valid(valid1 && is_sent1),
      .add_index({image1, member1, v6_1}),
      .add_bytes(sent1),
      .take_valid(takes && take_kind == OfMembers),
      .take_ready(unused_members_ready),
      .take_index(take_index),
      .taken_valid(members_valid),
      .taken(members_taken)
  );

  counters #(
      .Bits(SetsBits)
  ) sets (
      .clk(clk),
      .rst(rst),
      .add_valid(valid1 && is_ours1 && counts_set1),
      .add_index({image1, lb1, set1, !is_sent1}),
      .add_bytes(16'd0),
      .take_valid(takes && take_kind == OfSets),
      .take_ready(unused_sets_ready),
      .take_index(take_index[SetsBits-1:0]),
      .taken_valid(sets_valid),
      .taken(sets_taken)
  );

  // ------------------------------------------------------------------ ticks

  typedef struct packed {
    logic [63:0] highest;
    logic [63:0] lowest;
    logic [39:0] packets;
  } beyond_t;

  beyond_t [Lbs-1:0] beyond;
  for (genvar lb = 0; lb < Lbs; lb++) begin : gen_ticks
    logic is_here, is_beyond, clears_newest, clears_beyond;
    assign is_here = valid1 && is_sent1 && lb1 == LbBits'(lb);
    assign is_beyond = tick1 > horizons[lb];
    assign clears_newest = takes && take_kind == NewestTick && take_index[LbBits-1:0] == LbBits'(lb);
    assign clears_beyond = takes && take_kind == BeyondHorizon && take_index[LbBits-1:0] == LbBits'(lb);
    always_ff @(posedge clk) begin
      if (is_here && !is_beyond) begin
        has_newest[lb] <= 1'b1;
        if (!has_newest[lb] || tick1 > newest[lb]) newest[lb] <= tick1;
      end
      if (is_here && is_beyond) begin
        beyond[lb].packets <= beyond[lb].packets + 40'd1;
        if (beyond[lb].packets == '0 || tick1 > beyond[lb].highest) beyond[lb].highest <= tick1;
        if (beyond[lb].packets == '0 || tick1 < beyond[lb].lowest) beyond[lb].lowest <= tick1;
      end
      // Nothing is counted in the cycle of a request.
      if (rst || clears_newest) has_newest[lb] <= 1'b0;
      if (rst || clears_beyond) beyond[lb].packets <= '0;
    end
  end

  logic ticks_valid;
  logic [191:0] ticks;
  always_ff @(posedge clk) begin
    ticks_valid <= takes && !(take_kind inside {OfPackets, OfMembers, OfSets}) && !rst;
    if (take_kind == NewestTick) begin
      ticks <= 192'({has_newest[take_index[LbBits-1:0]], newest[take_index[LbBits-1:0]]});
    end else begin
      ticks <= 192'(beyond[take_index[LbBits-1:0]]);
    end
  end

  always_ff @(posedge clk) begin
    taken_valid <= (packets_valid || members_valid || sets_valid || ticks_valid) && !rst;
    if (packets_valid) taken <= 192'(packets_taken);
    else if (members_valid) taken <= 192'(members_taken);
    else if (sets_valid) taken <= 192'(sets_taken);
    else taken <= ticks;
  end

endmodule
