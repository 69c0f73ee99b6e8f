// Proves of `responder_check` that a request of a connected queue pair is new exactly if its PSN is the expected one, a duplicate exactly if it is
// up to 2^23 behind, and behind a gap otherwise, around the wrap at 2^24; and that the expected PSN is the one behind the last request that was
// accepted, also if requests follow each other closely.
//
// The harness follows one queue pair, which may be any, and its requests through all stages. From the decisions that leave it counts the PSN that
// must be expected; it never reads this PSN from the module.
//
// Assumed: while a queue pair is set up, it has no packet inside the module and none that enters, and the path MTU is one of the five. What the
// other queue pairs do is free.
module responder_window
  import roce_pkg::*;
#(
    parameter int QueuePairs = 4,
    parameter int Slots = 4,
    localparam int QpBits = $clog2(QueuePairs),
    localparam int SlotBits = $clog2(Slots)
) (
    input logic clk,
    input logic [QpBits-1:0] any_qp,
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
    input logic [QpBits-1:0] setup_qp,
    input logic setup_connected,
    input logic [23:0] setup_psn,
    input logic [15:0] setup_pd,
    input logic [2:0] setup_mtu,
    input logic [7:0] setup_reads,
    input logic [31:0] setup_receive,

    input logic post_valid,
    input logic [QpBits-1:0] post_qp,
    input logic read_done_valid,
    input logic [QpBits-1:0] read_done_qp,

    input logic packet_valid,
    input logic [QpBits-1:0] packet_qp,
    input logic [7:0] packet_opcode,
    input logic packet_ack_req,
    input logic [23:0] packet_psn,
    input logic [15:0] packet_payload,
    input logic [63:0] packet_address,
    input logic [31:0] packet_rkey,
    input logic [31:0] packet_length,

    input logic decision_ready
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic table_ready, setup_ready, packet_ready, decision_valid, decision_failed, decision_duplicate, decision_gap;
  logic [QpBits-1:0] decision_qp;
  reply_e decision_reply;
  logic [7:0] decision_syndrome;
  logic [23:0] decision_psn, decision_msn, decision_packets;
  place_e decision_place;
  logic [SlotBits-1:0] decision_slot;
  logic [31:0] decision_generation, decision_length;
  logic [63:0] decision_offset;
  completion_e decision_completion;
  responder_check #(
      .QueuePairs(QueuePairs),
      .Slots(Slots)
  ) dut (
      .rst(!begun),
      .*
  );

  // ------------------------------------------------------------------ the queue pair that is followed

  logic [QpBits-1:0] qp;
  always_ff @(posedge clk) if (!begun) qp <= any_qp;

  // Whether it is connected, its path MTU, and the PSN that it expects, as they are for the request whose decision leaves next.
  logic is_connected;
  logic [2:0] mtu;
  logic [23:0] expected;
  // A request was accepted since the queue pair was set up.
  logic has_accepted;

  // ------------------------------------------------------------------ its requests in each stage

  // `count` is the number of PSNs that the answer to a READ takes.
  typedef struct packed {
    logic valid;
    logic [23:0] psn;
    logic is_read;
    logic [24:0] count;
  } request_t;

  function automatic logic [24:0] count_of(logic [31:0] length, logic [2:0] mtu_code);
    logic [32:0] rounded;
    rounded = 33'(length) + (33'd256 << mtu_code) - 33'd1;
    return length == '0 ? 25'd1 : 25'(rounded >> (4'd8 + 4'(mtu_code)));
  endfunction

  // The stages in front of the state, and those from there to the decision, which is in the last one.
  localparam int Front = 10;
  localparam int Out = 5;
  request_t front[1:Front], behind[Out+1];
  logic enters, leaves;
  assign enters = packet_valid && packet_ready && packet_qp == qp;
  assign leaves = behind[Out].valid && decision_ready;
  always_ff @(posedge clk) begin
    if (dut.enable) begin
      front[1] <= '{enters, packet_psn, decode(packet_opcode).operation == Read, count_of(packet_length, mtu)};
      for (int i = 2; i <= Front; i++) front[i] <= front[i-1];
    end
    if (dut.run) begin
      behind[0] <= front[Front];
      behind[0].valid <= front[Front].valid && dut.enable;
      for (int i = 1; i <= Out; i++) behind[i] <= behind[i-1];
      // There is no decision for a packet of a queue pair that is not connected.
      behind[4].valid <= behind[3].valid && is_connected;
    end
    if (!begun) begin
      for (int i = 1; i <= Front; i++) front[i].valid <= 1'b0;
      for (int i = 0; i <= Out; i++) behind[i].valid <= 1'b0;
    end
  end

  logic [Front:1] is_in_front;
  logic [Out:0] is_behind;
  for (genvar i = 1; i <= Front; i++) begin : gen_front
    assign is_in_front[i] = front[i].valid;
  end
  for (genvar i = 0; i <= Out; i++) begin : gen_behind
    assign is_behind[i] = behind[i].valid;
  end

  // ------------------------------------------------------------------ what a decision means

  // How far the request is ahead, modulo 2^24.
  logic [23:0] distance, expected_next;
  logic is_new, is_accepted;
  assign distance = behind[Out].psn - expected;
  assign is_new = !decision_gap && !decision_duplicate;
  assign is_accepted = is_new && decision_syndrome == Ack;
  assign expected_next = expected + (!is_accepted ? 24'd0 : decision_reply == ReadOnce ? behind[Out].count[23:0] : 24'd1);

  logic sets_up;
  assign sets_up = setup_valid && setup_ready && setup_qp == qp;
  always_ff @(posedge clk) begin
    if (leaves) begin
      expected <= expected_next;
      has_accepted <= has_accepted || is_accepted;
      if (decision_failed) is_connected <= 1'b0;
    end
    if (sets_up) has_accepted <= 1'b0;
    if (sets_up) {is_connected, expected, mtu} <= {setup_connected, setup_psn, setup_mtu};
    if (!begun) is_connected <= 1'b0;
  end

  // ------------------------------------------------------------------ the module's stages

  // Element i: in stage i there is a packet; it is the one that is followed, if any is; its PSN and its operation are right.
  logic [Front:1] has_packet, is_followed, is_same;
  for (genvar i = 1; i <= Front; i++) begin : gen_packet
    assign has_packet[i] = dut.front[i].valid;
    assign is_followed[i] = front[i].valid == (dut.front[i].valid && dut.front[i].qp == qp);
    assign is_same[i] = !front[i].valid || is_request(dut.front[i].psn, dut.front[i].opcode.operation, front[i]);
  end
  logic [Front:5] is_counted_front;
  for (genvar i = 5; i <= Front; i++) begin : gen_count
    assign is_counted_front[i] = !front[i].valid || is_counted(dut.packets[i], dut.too_many[i], front[i].count);
  end
  logic has_request, is_ready, is_stored;
  assign has_request = dut.packet0.valid || dut.packet1.valid || dut.packet2.valid || dut.packet3.valid || dut.packet4.valid || decision_valid;
  assign is_ready = dut.is_cleared && table_ready;
  // The memory has the state of the queue pair.
  assign is_stored = dut.is_cleared || dut.cleared > (QpBits + 1)'(qp);

  // Whether a state of the memory is that of the queue pair.
  function automatic logic is_newest(logic connected, logic [23:0] psn);
    return connected == is_connected && (!is_connected || psn == expected);
  endfunction

  // Whether a packet in the module has the PSN and the operation of a request.
  function automatic logic is_request(logic [23:0] psn, operation_e operation, request_t request);
    return psn == request.psn && (operation == Read) == request.is_read;
  endfunction

  // Whether the numbers that belong to a request are its own.
  function automatic logic is_counted(logic [23:0] packets, logic too_many, logic [24:0] count);
    return !is_connected || packets == count[23:0] && too_many == (count[24:23] != '0);
  endfunction

  // ------------------------------------------------------------------ what is proved

  always_comb begin
    if (begun) begin
      setup_is_alone : assume (!sets_up || is_in_front == '0 && is_behind == '0 && !enters);
      mtu_is_legal : assume (setup_mtu <= 3'd4);

      // The state in the memory.
      starts_unconnected : assert (dut.is_cleared || !is_connected);
      starts_empty : assert (is_ready || has_packet == '0 && !has_request);
      clearing_ends : assert (dut.cleared <= (QpBits + 1)'(QueuePairs));
      mtu_is_stored : assert (!is_connected || mtu <= 3'd4 && dut.settings[qp].mtu == mtu);
      if (!is_behind[Out]) begin
        state_is_stored : assert (!is_stored || is_newest(dut.states[qp].connected, dut.states[qp].psn));
      end

      // One packet of the queue pair is behind the memory at a time. A packet in front of it knows that it must wait.
      one_is_behind : assert ((is_behind & (is_behind - 6'd1)) == '0);
      next_waits : assert (!is_in_front[Front] || (is_behind[4:0] & ~dut.same) == '0);

      // The packets in front.
      follows_front : assert (&is_followed);
      request_front : assert (&is_same);
      if (is_connected) begin
        if (front[1].valid) settings1 : assert (dut.settings1.mtu == mtu && front[1].count == count_of(dut.lengths[1], mtu));
        if (front[2].valid) settings2 : assert (dut.settings2.mtu == mtu && front[2].count == count_of(dut.lengths[2], mtu));
        if (front[3].valid) begin
          shift3 : assert (dut.shift3 == mtu);
          rounded3 : assert (front[3].count == (dut.is_empty3 ? 25'd1 : 25'(dut.rounded3 >> (4'd8 + 4'(mtu)))));
        end
        if (front[4].valid) count4 : assert (dut.needed4 == front[4].count);
        count_front : assert (&is_counted_front);
      end

      // The packets behind. Each has the newest state, and what is computed of its PSN is right.
      follows_behind :
      assert (is_behind[4:0] == {
        dut.packet4.valid && dut.packet4.qp == qp,
        dut.packet3.valid && dut.packet3.qp == qp,
        dut.packet2.valid && dut.packet2.qp == qp,
        dut.packet1.valid && dut.packet1.qp == qp,
        dut.packet0.valid && dut.packet0.qp == qp
      });
      if (is_behind[0]) begin
        request0 : assert (is_request(dut.packet0.psn, dut.packet0.opcode.operation, behind[0]));
        state0 : assert (is_newest(dut.state0.connected, dut.state0.psn));
        count0 : assert (is_counted(dut.packets0, dut.too_many0, behind[0].count));
      end
      if (is_behind[1]) begin
        request1 : assert (is_request(dut.packet1.psn, dut.packet1.opcode.operation, behind[1]));
        state1 : assert (is_newest(dut.state1.connected, dut.state1.psn));
        count1 : assert (is_counted(dut.packets1, dut.too_many1, behind[1].count));
      end
      if (is_behind[2]) begin
        request2 : assert (is_request(dut.packet2.psn, dut.packet2.opcode.operation, behind[2]));
        state2 : assert (is_newest(dut.state2.connected, dut.state2.psn));
        count2 : assert (is_counted(dut.packets2, dut.too_many2, behind[2].count));
        ahead2 : assert (!is_connected || dut.ahead2 == behind[2].psn - expected);
      end
      if (is_behind[3]) begin
        request3 : assert (is_request(dut.packet3.psn, dut.packet3.opcode.operation, behind[3]));
        state3 : assert (is_newest(dut.state3.connected, dut.state3.psn));
        count3 : assert (is_counted(dut.count3, dut.too_many3, behind[3].count));
        new3 : assert (!is_connected || dut.in_order3 == (behind[3].psn == expected));
        gap3 : assert (!is_connected || dut.ahead3 == (24'(behind[3].psn - expected - 24'd1) < 24'h7f_ffff));
      end
      if (is_behind[4]) begin
        request4 : assert (is_request(dut.packet4.psn, dut.packet4.opcode.operation, behind[4]));
        state4 : assert (is_connected && dut.state4.connected && dut.state4.psn == expected);
        new4 : assert (dut.in_order4 == (behind[4].psn == expected));
        gap4 : assert (dut.ahead4 == (24'(behind[4].psn - expected - 24'd1) < 24'h7f_ffff));
        packets4 : assert (!behind[4].is_read || !dut.passes || 25'(dut.packets4) == behind[4].count);
        next4 : assert (dut.psn_next4 == expected + (behind[4].is_read ? dut.packets4 : 24'd1));
        last4 : assert (dut.psn_last4 == expected - 24'd1);
      end

      // The decision: there is one for each request, in order.
      decision_is_of_request : assert (behind[Out].valid == (decision_valid && decision_qp == qp));
      if (behind[Out].valid) begin
        decision_needs_connection : assert (is_connected);
        gap_is_ahead : assert (decision_gap == (distance >= 24'd1 && distance <= 24'h7f_ffff));
        duplicate_is_behind : assert (decision_duplicate == (distance >= 24'h80_0000));
        only_new_has_effect :
        assert (is_new || decision_place == Nowhere && decision_completion == None && !decision_failed && decision_reply != ReadOnce);
        reply_once_is_read : assert (decision_reply != ReadOnce || is_accepted && behind[Out].is_read);
        count_is_right : assert (decision_reply != ReadOnce || 25'(decision_packets) == behind[Out].count);
        nak_names_expected :
        assert (!decision_gap || decision_reply == Silence || decision_reply == Acknowledge && decision_psn == expected);
        // What the memory has for the next packet.
        state_follows : assert (dut.states[qp].connected == !decision_failed && dut.states[qp].psn == expected_next);
      end

      new_at_wrap : cover (leaves && is_accepted && behind[Out].psn == '1);
      duplicate_over_wrap : cover (leaves && decision_duplicate && behind[Out].psn > 24'hff_fff0 && expected == 24'd1);
      furthest_gap : cover (leaves && decision_gap && distance == 24'h7f_ffff);
      read_takes_several : cover (leaves && decision_reply == ReadOnce && decision_packets > 24'd2);
      next_is_behind_wrap : cover (leaves && is_accepted && has_accepted && expected == '0);
    end
  end

endmodule
