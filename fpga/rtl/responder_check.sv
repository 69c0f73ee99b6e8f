// Decides what a responder does with a request. It checks the PSN, the order of the packets of a message, lengths and access, and chooses the
// acknowledgement.
//
//   packet -> queue pair's settings -> region_check (8) -> state -> differences -> comparisons -> verdict -> decision, new state
//                                                           ^------------ 6 cycles for each queue pair ------------'
//
// Packets of different queue pairs pass at one per cycle, and packets of the same queue pair at one in 6 cycles: a packet waits until the packet
// before it has written the state.
//
// After a reset there are no queue pairs and no regions. table_ready and setup_ready stay low until all of them are cleared.
//
// table_*: the new region of a slot, as in region_check.
// setup_*: the new settings of a queue pair; setup_connected = 0 removes it. It is written in a cycle in which setup_valid and setup_ready are
//   high. No packet of the queue pair may be inside the module then, and none may enter in that cycle.
// post_*: one more receive was posted to the queue pair. read_done_*: one READ of the queue pair is answered, and counts no more among those that
//   are unanswered. Each may be high in every cycle but the one after a setup.
// packet_*: requests, with valid and ready. Their invariant CRC was checked, and they come from the peer of the connection.
// decision_*: one decision for each packet of a connected queue pair, with valid and ready, 16 cycles after the packet or later.
//
// The module does the same as the Rust type Responder of roce, if all receives of a queue pair have the same length. Everything but SEND, WRITE
// and READ is an invalid request.
module responder_check
  import roce_pkg::*, responder_pkg::*;
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
    output logic table_ready,
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
    // The most READs that may be unanswered at a time.
    input logic [7:0] setup_reads,
    // The length of each receive in bytes.
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
    // The length of the payload in bytes, without the pad.
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
    // The number of PSNs that the answer to a READ takes.
    output logic [23:0] decision_packets,
    output place_e decision_place,
    // The region of a WRITE or of a READ, if it has any bytes.
    output logic [SlotBits-1:0] decision_slot,
    output logic [31:0] decision_generation,
    // The place in the region or in the receive where the payload goes, or where a READ begins.
    output logic [63:0] decision_offset,
    output completion_e decision_completion,
    // The length in bytes of a message that is complete, or of a READ.
    output logic [31:0] decision_length,
    // The connection is lost.
    output logic decision_failed,
    // The request is a duplicate, or it comes from behind a gap. These two are for counters.
    output logic decision_duplicate,
    output logic decision_gap
);

  typedef struct packed {
    logic connected;
    logic [23:0] psn;
    logic [23:0] msn;
    message_e message;
    // The WRITE that is going on: whether it has a region, the region, the place of its next byte, its length, and its bytes so far.
    logic has_target;
    logic [SlotBits-1:0] slot;
    logic [31:0] generation;
    logic [63:0] offset;
    logic [31:0] length;
    logic [31:0] filled;
    // Packets came from behind a gap, and a NAK was sent for it.
    logic has_gap;
    logic [23:0] gap_first;
    logic [23:0] gap_furthest;
    logic [23:0] gap_latest;
    logic has_read;
    logic [23:0] last_read;
    // The number of READs that were begun, and of receives that were taken.
    logic [7:0] reads;
    logic [15:0] receives;
  } state_t;

  // What a packet says by itself.
  typedef struct packed {
    logic valid;
    logic [QpBits-1:0] qp;
    opcode_t opcode;
    logic ack_req;
    logic [23:0] psn;
    logic [15:0] payload;
  } packet_t;

  // ------------------------------------------------------------------ memories

  settings_t settings[QueuePairs];
  state_t states[QueuePairs];
  logic [15:0] posted[QueuePairs];
  logic [7:0] read_done[QueuePairs];

  // What each region permits is read when a packet is judged, because access may have been withdrawn since the message began. A slot that was not
  // written since the reset is never read.
  alive_t alive[Slots];

  always_ff @(posedge clk) begin
    if (table_write) begin
      alive[table_slot] <= '{table_valid && table_remote_read, table_valid && table_remote_write, table_generation};
    end
  end

  // The number of queue pairs that were cleared since the reset. Its highest bit is 1 when all are.
  logic [QpBits:0] cleared;
  logic is_cleared;
  assign is_cleared = cleared[QpBits];
  always_ff @(posedge clk) begin
    if (rst) cleared <= '0;
    else if (!is_cleared) cleared <= cleared + 1'b1;
  end

  logic writes;
  logic [QpBits-1:0] written_qp;
  // The new state of that queue pair.
  state_t next;
  assign setup_ready = is_cleared && !writes;

  logic setup;
  assign setup = setup_valid && setup_ready;

  state_t begun;
  always_comb begin
    begun = '0;
    begun.connected = setup_connected && is_cleared;
    begun.psn = setup_psn;
  end

  logic [QpBits-1:0] begun_qp;
  assign begun_qp = is_cleared ? setup_qp : cleared[QpBits-1:0];

  always_ff @(posedge clk) begin
    if (setup) settings[setup_qp] <= '{setup_pd, setup_mtu, setup_reads, setup_receive};
    if (writes || setup || !is_cleared) states[writes?written_qp : begun_qp] <= writes ? next : begun;
  end

  // The two counters of a new queue pair are cleared one cycle after its setup, which makes the path from setup_valid shorter.
  logic fresh;
  logic [QpBits-1:0] fresh_qp;
  always_ff @(posedge clk) begin
    {fresh, fresh_qp} <= {setup, setup_qp};
    if (fresh) posted[fresh_qp] <= '0;
    else if (post_valid) posted[post_qp] <= posted[post_qp] + 16'd1;
    if (fresh) read_done[fresh_qp] <= '0;
    else if (read_done_valid) read_done[read_done_qp] <= read_done[read_done_qp] + 8'd1;
  end

  // ------------------------------------------------------------------ front: what the packet and the settings say

  localparam int Front = 10;

  logic run, waits, enable;
  // No stage moves while a decision waits. The stages in front of the state also stand still while a packet waits for the state.
  assign run = decision_ready || !decision_valid;
  assign enable = run && !waits && is_cleared && table_ready;
  assign packet_ready = enable;

  packet_t front[1:Front];
  logic [31:0] lengths[1:Front];
  settings_t settings1, settings2;
  logic [63:0] address1, address2;
  logic [31:0] rkey1, rkey2;
  always_ff @(posedge clk) begin
    if (enable) begin
      front[1] <= '{packet_valid, packet_qp, decode(packet_opcode), packet_ack_req, packet_psn, packet_payload};
      lengths[1] <= packet_length;
      for (int i = 2; i <= Front; i++) {front[i], lengths[i]} <= {front[i-1], lengths[i-1]};
      settings1 <= settings[packet_qp];
      {address1, rkey1} <= {packet_address, packet_rkey};
      {settings2, address2, rkey2} <= {settings1, address1, rkey1};
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
      .table_ready(table_ready),
      .table_slot(table_slot),
      .table_valid(table_valid),
      .table_secret(table_secret),
      .table_pd(table_pd),
      .table_remote_read(table_remote_read),
      .table_remote_write(table_remote_write),
      .table_generation(table_generation),
      .table_address(table_address),
      .table_length(table_length),
      .request_valid(front[2].valid),
      .request_rkey(rkey2),
      .request_pd(settings2.pd),
      .request_write(front[2].opcode.operation == Write),
      .request_address(address2),
      .request_length(lengths[2]),
      .answer_valid(answer_valid),
      .answer_ok(answer_ok),
      .answer_slot(answer_slot),
      .answer_generation(answer_generation),
      .answer_offset(answer_offset)
  );

  // Stages 3 to 5 compute the bounds. Then these are delayed until the region is known.
  logic [12:0] mtu2;
  assign mtu2 = 13'd256 << settings2.mtu;

  logic full3, within3;
  logic [32:0] rounded3;
  logic [2:0] shift3;
  logic too_long3, one_packet3, is_empty3, has_payload3;
  bounds_t bounds[4:Front];
  logic [31:0] receives[3:Front];
  logic [7:0] reads[3:Front];
  // The number of PSNs that the answer to a READ takes, up to 2^24. A requester may have less than 2^23 of them outstanding.
  logic [24:0] needed4;
  logic [23:0] packets[5:Front];
  logic too_many[5:Front];
  always_ff @(posedge clk) begin
    if (enable) begin
      full3 <= front[2].payload == 16'(mtu2);
      within3 <= front[2].payload <= 16'(mtu2);
      has_payload3 <= front[2].payload != '0;
      rounded3 <= 33'(lengths[2]) + 33'(mtu2) - 33'd1;
      shift3 <= settings2.mtu;
      too_long3 <= lengths[2] > LongestMessage;
      one_packet3 <= lengths[2] <= 32'(mtu2);
      is_empty3 <= lengths[2] == '0;
      {receives[3], reads[3]} <= {settings2.receive, settings2.reads};

      bounds[4].fits <= front[3].opcode.ends ? within3 && (front[3].opcode.starts || has_payload3) : full3;
      bounds[4].too_long <= too_long3;
      bounds[4].one_packet <= one_packet3;
      needed4 <= is_empty3 ? 25'd1 : 25'(rounded3 >> (4'd8 + 4'(shift3)));

      packets[5] <= needed4[23:0];
      too_many[5] <= |needed4[24:23];

      for (int i = 4; i <= Front; i++) {receives[i], reads[i]} <= {receives[i-1], reads[i-1]};
      for (int i = 5; i <= Front; i++) bounds[i] <= bounds[i-1];
      for (int i = 6; i <= Front; i++) {packets[i], too_many[i]} <= {packets[i-1], too_many[i-1]};
    end
  end

  // ------------------------------------------------------------------ 1: the state

  packet_t packet0, packet1, packet2, packet3, packet4;
  bounds_t bounds0, bounds1;
  state_t state0, state1;
  logic [7:0] reads0, reads1;
  logic [23:0] packets0, packets1;
  logic ok0, ok1, too_many0, too_many1;
  logic [SlotBits-1:0] slot0, slot1;
  logic [31:0] generation0, generation1;
  logic [63:0] offset0, offset1;
  logic [31:0] length0, length1, receive0, receive1;

  // Bit i: packet i is of the same queue pair as the last packet of the front. The bits are computed one cycle ahead.
  logic [4:0] same;
  assign waits = front[Front].valid && same != '0;
  always_ff @(posedge clk) begin
    if (enable) begin
      same[0] <= front[Front].valid && front[Front].qp == front[Front-1].qp;
      same[1] <= packet0.valid && packet0.qp == front[Front-1].qp;
      same[2] <= packet1.valid && packet1.qp == front[Front-1].qp;
      same[3] <= packet2.valid && packet2.qp == front[Front-1].qp;
      same[4] <= packet3.valid && packet3.qp == front[Front-1].qp;
    end else if (run) same <= {same[3:0], 1'b0};
    if (rst) same <= '0;
  end

  always_ff @(posedge clk) begin
    if (run) begin
      // The output of the memory.
      packet0 <= front[Front];
      packet0.valid <= front[Front].valid && !waits;
      {bounds0, reads0, packets0, too_many0} <= {bounds[Front], reads[Front], packets[Front], too_many[Front]};
      state0 <= states[front[Front].qp];
      {length0, receive0} <= {lengths[Front], receives[Front]};
      ok0 <= answer_ok && answer_valid;
      {slot0, generation0, offset0} <= {answer_slot, answer_generation, answer_offset};

      {packet1, bounds1, reads1, packets1, too_many1, state1} <= {packet0, bounds0, reads0, packets0, too_many0, state0};
      {length1, receive1, ok1, slot1, generation1, offset1} <= {length0, receive0, ok0, slot0, generation0, offset0};
    end
    if (rst) {packet0.valid, packet1.valid} <= '0;
  end

  // ------------------------------------------------------------------ 2: differences

  state_t state2;
  bounds_t bounds2;
  logic [23:0] ahead2, to_first2, to_furthest2, to_latest2, to_read2, end2, packets2;
  logic [15:0] posted2;
  logic [7:0] unanswered2, reads2;
  logic [SlotBits-1:0] slot2;
  logic [31:0] generation2, filled2, after2, total2, receive2;
  logic [63:0] place2;
  logic ok2, too_many2, target2;
  alive_t alive2;

  // The slot of the message's region. The first packet of a message has it from its RKey, later packets from the state.
  logic [SlotBits-1:0] looked1;
  assign looked1 = packet1.opcode.starts ? slot1 : state1.slot;

  always_ff @(posedge clk) begin
    if (run) begin
      packet2 <= packet1;
      {state2, bounds2, reads2, packets2, too_many2} <= {state1, bounds1, reads1, packets1, too_many1};
      ahead2 <= packet1.psn - state1.psn;
      to_first2 <= packet1.psn - state1.gap_first;
      to_furthest2 <= packet1.psn - state1.gap_furthest;
      to_latest2 <= state1.gap_latest - packet1.psn;
      to_read2 <= state1.last_read - packet1.psn;
      end2 <= packet1.psn + packets1;
      receive2 <= receive1;
      posted2 <= posted[packet1.qp];
      unanswered2 <= state1.reads - read_done[packet1.qp];
      slot2 <= looked1;
      alive2 <= alive[looked1];
      ok2 <= ok1 || !packet1.opcode.starts;
      generation2 <= packet1.opcode.starts ? generation1 : state1.generation;
      target2 <= packet1.opcode.starts ? length1 != '0 : state1.has_target;
      filled2 <= packet1.opcode.starts ? '0 : state1.filled;
      after2 <= (packet1.opcode.starts ? '0 : state1.filled) + 32'(packet1.payload);
      total2 <= packet1.opcode.starts ? length1 : state1.length;
      place2 <= packet1.opcode.starts ? offset1 : state1.offset;
    end
    if (rst) packet2.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 3: comparisons

  state_t state3;
  bounds_t bounds3;
  logic in_order3, ahead3, back3, gap_lower3, gap_further3, covers_read3, has_receive3, may_read3;
  logic [23:0] beyond3, count3;
  logic [SlotBits-1:0] slot3;
  logic [31:0] generation3, filled3, after3, total3;
  logic [63:0] place3;
  logic too_many3, target3, same_low3, same_high3, permits3, is_more3, is_all3, overflows3;

  always_ff @(posedge clk) begin
    if (run) begin
      packet3 <= packet2;
      {state3, bounds3, count3, too_many3} <= {state2, bounds2, packets2, too_many2};
      in_order3 <= ahead2 == '0;
      ahead3 <= is_after(ahead2);
      // The requester has gone back, or it repeats its last packet.
      back3 <= !is_after(to_first2) || to_furthest2 == '0 || !to_latest2[23] && to_latest2 > 24'd3;
      gap_lower3 <= to_first2[23];
      gap_further3 <= is_after(to_furthest2);
      covers_read3 <= state2.has_read && is_after(to_read2);
      has_receive3 <= posted2 != state2.receives;
      may_read3 <= unanswered2 < reads2;
      beyond3 <= end2 - state2.psn;
      same_low3 <= alive2.generation[15:0] == generation2[15:0];
      same_high3 <= alive2.generation[31:16] == generation2[31:16];
      permits3 <= ok2 && (packet2.opcode.operation == Read ? alive2.remote_read : alive2.remote_write);
      is_more3 <= after2 > total2;
      is_all3 <= after2 == total2;
      overflows3 <= after2 > receive2;
      {slot3, generation3, filled3, after3, total3, place3, target3} <= {
        slot2, generation2, filled2, after2, total2, place2, target2
      };
    end
    if (rst) packet3.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 4: the verdict

  state_t state4;
  verdict_e verdict4;
  logic in_order4, ahead4, back4, gap_lower4, gap_further4, covers_read4, again4, target4;
  logic [23:0] packets4, psn_next4, psn_last4;
  logic [SlotBits-1:0] slot4;
  logic [31:0] generation4, filled4, after4, total4;
  logic [63:0] place4;

  logic in_sequence3, ok3;
  verdict_e verdict3;
  assign ok3 = same_low3 && same_high3 && permits3;
  always_comb begin
    case (state3.message)
      Sending: in_sequence3 = packet3.opcode.operation == Send && !packet3.opcode.starts;
      Writing: in_sequence3 = packet3.opcode.operation == Write && !packet3.opcode.starts;
      default: in_sequence3 = packet3.opcode.starts;
    endcase

    verdict3 = Passes;
    if (!in_sequence3 || !bounds3.fits) verdict3 = Invalid;
    else begin
      unique case (packet3.opcode.operation)
        Send: begin
          if (packet3.opcode.starts && !has_receive3) verdict3 = NotReady;
          else if (overflows3) verdict3 = TooLong;
        end
        Write: begin
          if (packet3.opcode.imm && !has_receive3) verdict3 = NotReady;
          else if (packet3.opcode.starts && (bounds3.too_long || !packet3.opcode.ends && bounds3.one_packet)) begin
            verdict3 = Invalid;
          end else if (packet3.opcode.starts && target3 && !ok3) verdict3 = NoAccess;
          else if (is_more3 || packet3.opcode.ends != is_all3) verdict3 = Invalid;
          else if (target3 && !ok3) verdict3 = NoAccess;
        end
        Read: begin
          if (!may_read3 || bounds3.too_long || too_many3) verdict3 = Invalid;
          else if (target3 && !ok3) verdict3 = NoAccess;
        end
        Other: verdict3 = Invalid;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    if (run) begin
      packet4 <= packet3;
      packet4.valid <= packet3.valid && state3.connected;
      {state4, verdict4} <= {state3, verdict3};
      {in_order4, ahead4, back4, covers_read4, target4} <= {in_order3, ahead3, back3, covers_read3, target3};
      {gap_lower4, gap_further4} <= {gap_lower3, gap_further3};
      // A READ may be answered again if all of it was asked for before.
      again4 <= !bounds3.too_long && !too_many3 && (!target3 || ok3) && !is_after(beyond3);
      packets4 <= count3;
      psn_next4 <= state3.psn + (packet3.opcode.operation == Read ? count3 : 24'd1);
      psn_last4 <= state3.psn - 24'd1;
      {slot4, generation4, filled4, after4, total4, place4} <= {slot3, generation3, filled3, after3, total3, place3};
    end
    if (rst) packet4.valid <= 1'b0;
  end

  // ------------------------------------------------------------------ 5: the decision and the new state

  decision_t decision;
  logic is_read, passes;
  logic [23:0] next_msn;
  assign is_read = packet4.opcode.operation == Read;
  assign passes = in_order4 && verdict4 == Passes;
  assign next_msn = state4.msn + 24'(packet4.opcode.ends);

  always_comb begin
    next = state4;
    decision = '0;
    decision.msn = state4.msn;
    decision.length = total4;
    decision.offset = place4;
    if (ahead4) begin
      decision.gap = 1'b1;
      if (!state4.has_gap || back4) begin
        decision.reply = Acknowledge;
        decision.syndrome = NakSequence;
        decision.psn = state4.psn;
      end
      next.has_gap = 1'b1;
      if (!state4.has_gap || gap_lower4) next.gap_first = packet4.psn;
      if (!state4.has_gap || back4 || gap_further4) next.gap_furthest = packet4.psn;
      next.gap_latest = packet4.psn;
    end else if (!in_order4) begin
      decision.duplicate = 1'b1;
      decision.syndrome = Ack;
      if (!is_read) begin
        decision.reply = Acknowledge;
        decision.psn = covers_read4 ? packet4.psn : psn_last4;
      end else if (again4) begin
        decision.reply = ReadAgain;
        decision.psn = packet4.psn;
      end
    end else if (passes) begin
      next.has_gap = 1'b0;
      next.psn = psn_next4;
      next.msn = next_msn;
      decision.msn = next_msn;
      decision.syndrome = Ack;
      decision.psn = packet4.psn;
      if (is_read) begin
        decision.reply = ReadOnce;
        next.has_read = 1'b1;
        next.last_read = packet4.psn;
        next.reads = state4.reads + 8'd1;
      end else begin
        if (packet4.ack_req) decision.reply = Acknowledge;
        next.filled = after4;
        if (packet4.opcode.operation == Send) begin
          next.message = packet4.opcode.ends ? Idle : Sending;
          if (packet4.opcode.starts) next.receives = state4.receives + 16'd1;
          if (packet4.opcode.ends) decision.completion = Received;
          if (packet4.payload != '0) decision.place = ToReceive;
          decision.offset = 64'(filled4);
          decision.length = after4;
        end else begin
          next.message = packet4.opcode.ends ? Idle : Writing;
          {next.has_target, next.slot, next.generation, next.length} = {target4, slot4, generation4, total4};
          next.offset = place4 + 64'(packet4.payload);
          if (target4) decision.place = ToRegion;
          if (packet4.opcode.imm) begin
            decision.completion = ReceivedWrite;
            next.receives = state4.receives + 16'd1;
          end
        end
      end
    end else begin
      decision.reply = Acknowledge;
      decision.psn = packet4.psn;
      if (verdict4 == NotReady) begin
        decision.syndrome = RnrNak | 8'(rnr_timer);
        next.has_gap = 1'b1;
        {next.gap_first, next.gap_furthest, next.gap_latest} = {3{packet4.psn}};
      end else begin
        decision.syndrome = verdict4 == NoAccess ? NakAccess : NakInvalid;
        decision.failed = 1'b1;
        next.connected = 1'b0;
        next.has_gap = 1'b0;
        // The receive that a SEND has taken fails with the SEND.
        if (state4.message == Sending || verdict4 == TooLong) decision.completion = Failed;
      end
    end
  end

  assign writes = run && packet4.valid;
  assign written_qp = packet4.qp;

  always_ff @(posedge clk) begin
    if (run) begin
      decision_valid <= packet4.valid;
      decision_qp <= packet4.qp;
      decision_reply <= decision.reply;
      decision_syndrome <= decision.syndrome;
      decision_psn <= decision.psn;
      decision_msn <= decision.msn;
      decision_packets <= packets4;
      decision_place <= decision.place;
      decision_slot <= slot4;
      decision_generation <= generation4;
      decision_offset <= decision.offset;
      decision_completion <= decision.completion;
      decision_length <= decision.length;
      decision_failed <= decision.failed;
      decision_duplicate <= decision.duplicate;
      decision_gap <= decision.gap;
    end
    if (rst) decision_valid <= 1'b0;
  end

endmodule
