// What a responder does with a request: sequence, order, access, and the acknowledgement that follows.
//
//   packet -> queue pair's settings -> region_check (6) -> state -> differences -> verdicts -> decision, new state
//                                                           ^------- 4 cycles for each queue pair -------'
//
// Packets of different queue pairs pass at one per cycle; those of one queue pair at one in 4 cycles: a packet waits until the state of
// the one before is written. Retransmits, gaps and reordering are judged as the software does.
//
// table_*: memory regions, as in region_check.
// setup_*: makes a queue pair, or takes it away (setup_connected = 0), when setup_ready is high and no packet of it is inside.
// post_*: one more receive of the queue pair was posted. read_done_*: a READ that was answered once is over. One of each per cycle.
// packet_*: valid and ready. Only requests; the invariant CRC is right and the peer is the connection's.
// decision_*: 12 cycles after its packet, or later; valid and ready.
//
// Equal to: roce's responder with receives of one length per queue pair. SEND, WRITE and READ only: all else is an invalid request.
module responder_check
  import roce_pkg::*;
#(
    parameter int QueuePairs = 256,
    parameter int Slots = 256,
    localparam int QpBits = $clog2(QueuePairs),
    localparam int SlotBits = $clog2(Slots)
) (
    input logic clk,
    input logic rst,
    // The timer code of RNR NAKs.
    input logic [4:0] rnr_timer,

    input logic table_write,
    input logic [SlotBits-1:0] table_slot,
    input logic table_valid,
    input logic [31:SlotBits] table_secret,
    input logic [15:0] table_pd,
    input logic table_remote_read,
    input logic table_remote_write,
    input logic [31:0] table_generation,
    input logic [63:0] table_address,
    input logic [63:0] table_length,

    input logic setup_valid,
    output logic setup_ready,
    input logic [QpBits-1:0] setup_qp,
    input logic setup_connected,
    input logic [23:0] setup_psn,
    input logic [15:0] setup_pd,
    // The path MTU is 256 bytes shifted left by this, 0 to 4.
    input logic [2:0] setup_mtu,
    // READs that may be unanswered at a time.
    input logic [7:0] setup_reads,
    // Bytes of each receive.
    input logic [31:0] setup_receive,

    input logic post_valid,
    input logic [QpBits-1:0] post_qp,
    input logic read_done_valid,
    input logic [QpBits-1:0] read_done_qp,

    input logic packet_valid,
    output logic packet_ready,
    input logic [QpBits-1:0] packet_qp,
    input logic [7:0] packet_opcode,
    input logic packet_ack_req,
    input logic [23:0] packet_psn,
    // Without the pad.
    input logic [15:0] packet_payload,
    input logic [63:0] packet_address,
    input logic [31:0] packet_rkey,
    input logic [31:0] packet_length,

    output logic decision_valid,
    input logic decision_ready,
    output logic [QpBits-1:0] decision_qp,
    output reply_e decision_reply,
    output logic [7:0] decision_syndrome,
    output logic [23:0] decision_psn,
    output logic [23:0] decision_msn,
    // PSNs that the answer to a READ takes.
    output logic [23:0] decision_packets,
    output place_e decision_place,
    // Of the region, for a WRITE or a READ of more than no bytes.
    output logic [SlotBits-1:0] decision_slot,
    output logic [31:0] decision_generation,
    // Where the payload goes in the region or in the receive, or where a READ begins.
    output logic [63:0] decision_offset,
    output completion_e decision_completion,
    // Bytes of the message that is complete, or of a READ.
    output logic [31:0] decision_length,
    // The connection is lost.
    output logic decision_failed,
    // For counters: the request is a duplicate, or comes from behind a gap.
    output logic decision_duplicate,
    output logic decision_gap
);

  // Bit 23 of a difference of two PSNs is its sign.
  function automatic logic is_after(logic [23:0] difference);
    return !difference[23] && difference != '0;
  endfunction

  typedef struct packed {
    logic [15:0] pd;
    logic [2:0] mtu;
    logic [7:0] reads;
    logic [31:0] receive;
  } settings_t;

  typedef enum logic [1:0] {
    Idle,
    Sending,
    Writing
  } message_e;

  typedef struct packed {
    logic connected;
    logic [23:0] psn;
    logic [23:0] msn;
    message_e message;
    // Of a WRITE: it has a region; where its next byte goes; its length.
    logic has_target;
    logic [SlotBits-1:0] slot;
    logic [31:0] generation;
    logic [63:0] offset;
    logic [31:0] length;
    logic [31:0] filled;
    // A NAK was sent for a gap.
    logic has_gap;
    logic [23:0] gap_first;
    logic [23:0] gap_furthest;
    logic [23:0] gap_latest;
    logic has_read;
    logic [23:0] last_read;
    // READs begun, and receives taken.
    logic [7:0] reads;
    logic [15:0] receives;
  } state_t;

  // What is known of a packet by itself.
  typedef struct packed {
    logic valid;
    logic [QpBits-1:0] qp;
    opcode_t opcode;
    logic ack_req;
    logic [23:0] psn;
    logic [15:0] payload;
    logic [31:0] length;
  } packet_t;

  // What follows from the settings, too.
  typedef struct packed {
    logic fits;  // the length of the payload is right for its place in the message
    logic too_long;  // the message is longer than any may be
    logic one_packet;  // the message fits into one
    logic [23:0] packets;
    logic too_many;  // packets
    logic [31:0] receive;
  } bounds_t;

  // ------------------------------------------------------------------ memories

  settings_t settings[QueuePairs];
  state_t states[QueuePairs];
  logic [15:0] posted[QueuePairs];
  logic [7:0] read_done[QueuePairs];

  // The regions as they are when a packet is judged: access may have been withdrawn since the message began.
  typedef struct packed {
    logic remote_read;
    logic remote_write;
    logic [31:0] generation;
  } alive_t;
  alive_t alive[Slots];
  logic [Slots-1:0] is_alive;

  always_ff @(posedge clk) begin
    if (table_write) begin
      alive[table_slot] <= '{table_remote_read, table_remote_write, table_generation};
      is_alive[table_slot] <= table_valid;
    end
    if (rst) is_alive <= '0;
  end

  logic writes;
  logic [QpBits-1:0] written_qp;
  state_t written;
  assign setup_ready = !writes;

  logic setup;
  assign setup = setup_valid && setup_ready;

  state_t begun;
  always_comb begin
    begun = '0;
    begun.connected = setup_connected;
    begun.psn = setup_psn;
  end

  always_ff @(posedge clk) begin
    if (setup) settings[setup_qp] <= '{setup_pd, setup_mtu, setup_reads, setup_receive};
    if (writes || setup) states[writes?written_qp : setup_qp] <= writes ? written : begun;
  end

  // A queue pair starts with what was posted before: the driver sets it up first.
  always_ff @(posedge clk) begin
    if (setup) posted[setup_qp] <= '0;
    else if (post_valid) posted[post_qp] <= posted[post_qp] + 16'd1;
    if (setup) read_done[setup_qp] <= '0;
    else if (read_done_valid) read_done[read_done_qp] <= read_done[read_done_qp] + 8'd1;
  end

  // ------------------------------------------------------------------ front: what the packet and the settings say

  localparam int Front = 7;

  logic run, waits, enable;
  // Nothing moves while a decision waits; the front also waits for a state.
  assign run = decision_ready || !decision_valid;
  assign enable = run && !waits;
  assign packet_ready = enable;

  packet_t front[1:Front];
  settings_t settings1;
  logic [63:0] address1;
  logic [31:0] rkey1;
  always_ff @(posedge clk) begin
    if (enable) begin
      front[1] <= '{packet_valid, packet_qp, decode(packet_opcode), packet_ack_req, packet_psn, packet_payload, packet_length};
      for (int i = 2; i <= Front; i++) front[i] <= front[i-1];
      settings1 <= settings[packet_qp];
      {address1, rkey1} <= {packet_address, packet_rkey};
    end
    if (rst) for (int i = 1; i <= Front; i++) front[i].valid <= 1'b0;
  end

  logic answer_valid, answer_ok;
  logic [SlotBits-1:0] answer_slot;
  logic [31:0] answer_generation;
  logic [63:0] answer_offset;

  region_check #(
      .Slots(Slots)
  ) check (
      .clk(clk),
      .rst(rst),
      .enable(enable),
      .table_write(table_write),
      .table_slot(table_slot),
      .table_valid(table_valid),
      .table_secret(table_secret),
      .table_pd(table_pd),
      .table_remote_read(table_remote_read),
      .table_remote_write(table_remote_write),
      .table_generation(table_generation),
      .table_address(table_address),
      .table_length(table_length),
      .request_valid(front[1].valid),
      .request_rkey(rkey1),
      .request_pd(settings1.pd),
      .request_write(front[1].opcode.operation == Write),
      .request_address(address1),
      .request_length(front[1].length),
      .answer_valid(answer_valid),
      .answer_ok(answer_ok),
      .answer_slot(answer_slot),
      .answer_generation(answer_generation),
      .answer_offset(answer_offset)
  );

  // 2 to 3: the bounds, then delayed until the region is known.
  logic [12:0] mtu1;
  assign mtu1 = 13'd256 << settings1.mtu;

  logic full2, within2;
  logic [32:0] rounded2;
  logic [2:0] shift2;
  logic too_long2, one_packet2;
  bounds_t bounds[3:Front];
  logic [31:0] receive2;
  logic [7:0] reads[2:Front];
  always_ff @(posedge clk) begin
    if (enable) begin
      full2 <= front[1].payload == 16'(mtu1);
      within2 <= front[1].payload <= 16'(mtu1);
      rounded2 <= 33'(front[1].length) + 33'(mtu1) - 33'd1;
      shift2 <= settings1.mtu;
      too_long2 <= front[1].length > LongestMessage;
      one_packet2 <= front[1].length <= 32'(mtu1);
      {receive2, reads[2]} <= {settings1.receive, settings1.reads};

      bounds[3].fits <= front[2].opcode.ends ? within2 && (front[2].opcode.starts || front[2].payload != '0) : full2;
      bounds[3].too_long <= too_long2;
      bounds[3].one_packet <= one_packet2;
      bounds[3].packets <= front[2].length == '0 ? 24'd1 : 24'(rounded2 >> (4'd8 + 4'(shift2)));
      bounds[3].too_many <= rounded2 >> (4'd8 + 4'(shift2)) >= 33'h80_0000;
      bounds[3].receive <= receive2;
      reads[3] <= reads[2];
      for (int i = 4; i <= Front; i++) {bounds[i], reads[i]} <= {bounds[i-1], reads[i-1]};
    end
  end

  // ------------------------------------------------------------------ 1: the state

  packet_t packet1, packet2, packet3;
  bounds_t bounds1;
  logic [7:0] reads1;
  state_t state1;
  logic ok1;
  logic [SlotBits-1:0] slot1;
  logic [31:0] generation1;
  logic [63:0] offset1;

  assign waits = front[Front].valid && (
      packet1.valid && packet1.qp == front[Front].qp ||
      packet2.valid && packet2.qp == front[Front].qp ||
      packet3.valid && packet3.qp == front[Front].qp);

  always_ff @(posedge clk) begin
    if (run) begin
      packet1 <= front[Front];
      packet1.valid <= front[Front].valid && !waits;
      {bounds1, reads1} <= {bounds[Front], reads[Front]};
      state1 <= states[front[Front].qp];
      ok1 <= answer_ok && answer_valid;
      {slot1, generation1, offset1} <= {answer_slot, answer_generation, answer_offset};
    end
    if (rst) packet1.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 2: differences

  state_t state2;
  bounds_t bounds2;
  logic in_order2, ahead2, back2, covers_read2, has_receive2, may_read2;
  logic [SlotBits-1:0] slot2;
  logic [31:0] generation2, after2, total2, filled2;
  logic [63:0] place2, source2;
  logic [23:0] end2;
  logic ok2, target2, gap_lower2, gap_further2;

  logic [SlotBits-1:0] looked1;
  logic [31:0] expected1;
  alive_t alive1;
  logic is_alive1, still1;
  always_comb begin
    // The region of the message: of this packet if it begins one.
    looked1 = packet1.opcode.starts ? slot1 : state1.slot;
    expected1 = packet1.opcode.starts ? generation1 : state1.generation;
    alive1 = alive[looked1];
    is_alive1 = is_alive[looked1];
    still1 = is_alive1 && alive1.generation == expected1
        && (packet1.opcode.operation == Read ? alive1.remote_read : alive1.remote_write);
  end

  logic [23:0] ahead1, to_first1, to_furthest1, to_latest1, to_read1;
  assign ahead1 = packet1.psn - state1.psn;
  assign to_first1 = packet1.psn - state1.gap_first;
  assign to_furthest1 = packet1.psn - state1.gap_furthest;
  assign to_latest1 = state1.gap_latest - packet1.psn;
  assign to_read1 = state1.last_read - packet1.psn;

  always_ff @(posedge clk) begin
    if (run) begin
      packet2 <= packet1;
      {state2, bounds2} <= {state1, bounds1};
      in_order2 <= ahead1 == '0;
      ahead2 <= is_after(ahead1);
      // The requester has gone back, or repeats its last packet.
      back2 <= !is_after(to_first1) || to_furthest1 == '0 || is_after(to_latest1 - 24'd3) && !to_latest1[23];
      gap_lower2 <= to_first1[23];
      gap_further2 <= is_after(to_furthest1);
      covers_read2 <= state1.has_read && is_after(to_read1);
      has_receive2 <= posted[packet1.qp] != state1.receives;
      may_read2 <= 8'(state1.reads - read_done[packet1.qp]) < reads1;
      slot2 <= looked1;
      generation2 <= expected1;
      ok2 <= packet1.opcode.starts ? ok1 && still1 : still1;
      target2 <= packet1.opcode.starts ? packet1.length != '0 : state1.has_target;
      filled2 <= packet1.opcode.starts ? '0 : state1.filled;
      after2 <= (packet1.opcode.starts ? '0 : state1.filled) + 32'(packet1.payload);
      total2 <= packet1.opcode.starts ? packet1.length : state1.length;
      place2 <= packet1.opcode.starts ? offset1 : state1.offset;
      source2 <= offset1;
      end2 <= packet1.psn + bounds1.packets;
    end
    if (rst) packet2.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 3: verdicts

  typedef enum logic [2:0] {
    Passes,
    NotReady,
    Invalid,
    NoAccess,
    TooLong
  } verdict_e;

  state_t state3;
  logic [23:0] packets3;
  verdict_e verdict3;
  logic in_order3, ahead3, back3, covers_read3, again3, target3, gap_lower3, gap_further3;
  logic [SlotBits-1:0] slot3;
  logic [31:0] generation3, after3, total3, filled3;
  logic [63:0] place3, source3;

  logic in_sequence2, may_again2;
  logic [23:0] beyond2;
  verdict_e verdict2;
  assign beyond2 = end2 - state2.psn;
  always_comb begin
    case (state2.message)
      Sending: in_sequence2 = packet2.opcode.operation == Send && !packet2.opcode.starts;
      Writing: in_sequence2 = packet2.opcode.operation == Write && !packet2.opcode.starts;
      default: in_sequence2 = packet2.opcode.starts;
    endcase
    may_again2 = !bounds2.too_long && !bounds2.too_many && (!target2 || ok2) && !is_after(beyond2);

    verdict2 = Passes;
    if (!in_sequence2 || !bounds2.fits) verdict2 = Invalid;
    else begin
      unique case (packet2.opcode.operation)
        Send: begin
          if (packet2.opcode.starts && !has_receive2) verdict2 = NotReady;
          else if (after2 > bounds2.receive) verdict2 = TooLong;
        end
        Write: begin
          if (packet2.opcode.imm && !has_receive2) verdict2 = NotReady;
          else if (packet2.opcode.starts && (bounds2.too_long || !packet2.opcode.ends && bounds2.one_packet)) begin
            verdict2 = Invalid;
          end else if (packet2.opcode.starts && target2 && !ok2) verdict2 = NoAccess;
          else if (after2 > total2 || packet2.opcode.ends != (after2 == total2)) verdict2 = Invalid;
          else if (target2 && !ok2) verdict2 = NoAccess;
        end
        Read: begin
          if (!may_read2 || bounds2.too_long || bounds2.too_many) verdict2 = Invalid;
          else if (target2 && !ok2) verdict2 = NoAccess;
        end
        Other: verdict2 = Invalid;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    if (run) begin
      packet3 <= packet2;
      packet3.valid <= packet2.valid && state2.connected;
      {state3, packets3, verdict3} <= {state2, bounds2.packets, verdict2};
      {in_order3, ahead3, back3, covers_read3, target3} <= {in_order2, ahead2, back2, covers_read2, target2};
      {gap_lower3, gap_further3, again3} <= {gap_lower2, gap_further2, may_again2};
      {slot3, generation3, after3, total3, filled3, place3, source3} <= {
        slot2, generation2, after2, total2, filled2, place2, source2
      };
    end
    if (rst) packet3.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 4: the decision and the new state

  typedef struct packed {
    reply_e reply;
    logic [7:0] syndrome;
    logic [23:0] psn;
    logic [23:0] msn;
    place_e place;
    logic [63:0] offset;
    completion_e completion;
    logic [31:0] length;
    logic failed;
    logic duplicate;
    logic gap;
  } decision_t;

  state_t next3;
  decision_t decision3;
  logic is_read3, passes3;
  logic [23:0] next_psn3, next_msn3;
  assign is_read3 = packet3.opcode.operation == Read;
  assign passes3 = in_order3 && verdict3 == Passes;
  assign next_psn3 = state3.psn + (is_read3 ? packets3 : 24'd1);
  assign next_msn3 = state3.msn + 24'(packet3.opcode.ends);

  always_comb begin
    next3 = state3;
    decision3 = '0;
    decision3.msn = state3.msn;
    decision3.length = is_read3 ? packet3.length : total3;
    decision3.offset = is_read3 ? source3 : place3;
    if (ahead3) begin
      decision3.gap = 1'b1;
      if (!state3.has_gap || back3) begin
        decision3.reply = Acknowledge;
        decision3.syndrome = NakSequence;
        decision3.psn = state3.psn;
      end
      next3.has_gap = 1'b1;
      if (!state3.has_gap || gap_lower3) next3.gap_first = packet3.psn;
      if (!state3.has_gap || back3 || gap_further3) next3.gap_furthest = packet3.psn;
      next3.gap_latest = packet3.psn;
    end else if (!in_order3) begin
      decision3.duplicate = 1'b1;
      decision3.syndrome = Ack;
      if (!is_read3) begin
        decision3.reply = Acknowledge;
        decision3.psn = covers_read3 ? packet3.psn : state3.psn - 24'd1;
      end else if (again3) begin
        decision3.reply = ReadAgain;
        decision3.psn = packet3.psn;
      end
    end else if (passes3) begin
      next3.has_gap = 1'b0;
      next3.psn = next_psn3;
      next3.msn = next_msn3;
      decision3.msn = next_msn3;
      decision3.syndrome = Ack;
      decision3.psn = packet3.psn;
      if (is_read3) begin
        decision3.reply = ReadOnce;
        next3.has_read = 1'b1;
        next3.last_read = packet3.psn;
        next3.reads = state3.reads + 8'd1;
      end else begin
        if (packet3.ack_req) decision3.reply = Acknowledge;
        next3.filled = after3;
        if (packet3.opcode.operation == Send) begin
          next3.message = packet3.opcode.ends ? Idle : Sending;
          if (packet3.opcode.starts) next3.receives = state3.receives + 16'd1;
          if (packet3.opcode.ends) decision3.completion = Received;
          if (packet3.payload != '0) decision3.place = ToReceive;
          decision3.offset = 64'(filled3);
          decision3.length = after3;
        end else begin
          next3.message = packet3.opcode.ends ? Idle : Writing;
          {next3.has_target, next3.slot, next3.generation, next3.length} = {target3, slot3, generation3, total3};
          next3.offset = place3 + 64'(packet3.payload);
          if (target3) decision3.place = ToRegion;
          if (packet3.opcode.imm) begin
            decision3.completion = ReceivedWrite;
            next3.receives = state3.receives + 16'd1;
          end
        end
      end
    end else begin
      decision3.reply = Acknowledge;
      decision3.psn = packet3.psn;
      if (verdict3 == NotReady) begin
        decision3.syndrome = RnrNak | 8'(rnr_timer);
        next3.has_gap = 1'b1;
        {next3.gap_first, next3.gap_furthest, next3.gap_latest} = {3{packet3.psn}};
      end else begin
        decision3.syndrome = verdict3 == NoAccess ? NakAccess : NakInvalid;
        decision3.failed = 1'b1;
        next3.connected = 1'b0;
        next3.has_gap = 1'b0;
        // A receive that a SEND has taken fails with it.
        if (state3.message == Sending || verdict3 == TooLong) decision3.completion = Failed;
      end
    end
  end

  assign writes = run && packet3.valid;
  assign written_qp = packet3.qp;
  assign written = next3;

  always_ff @(posedge clk) begin
    if (run) begin
      decision_valid <= packet3.valid;
      decision_qp <= packet3.qp;
      decision_reply <= decision3.reply;
      decision_syndrome <= decision3.syndrome;
      decision_psn <= decision3.psn;
      decision_msn <= decision3.msn;
      decision_packets <= packets3;
      decision_place <= decision3.place;
      decision_slot <= slot3;
      decision_generation <= generation3;
      decision_offset <= decision3.offset;
      decision_completion <= decision3.completion;
      decision_length <= decision3.length;
      decision_failed <= decision3.failed;
      decision_duplicate <= decision3.duplicate;
      decision_gap <= decision3.gap;
    end
    if (rst) decision_valid <= 1'b0;
  end

endmodule
