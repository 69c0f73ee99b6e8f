// Proves of `lb_top` that the stream of frames which leaves follows the rules of AXI4-Stream, and that forwarded frames and answers leave beat for
// beat, each as a whole: the beats of one are never among those of another.
//
// The modules in lb_top are only their ports here, and their outputs may have any values.
//
// Assumed: the two streams that meet in lb_top, those of eth_add and lb_answers, follow the rules themselves. `add_stream` and `answer_stream` prove
// it.
module top_stream #(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic s_axil_awvalid,
    input logic [11:0] s_axil_awaddr,
    input logic s_axil_wvalid,
    input logic [31:0] s_axil_wdata,
    input logic s_axil_bready,
    input logic s_axil_arvalid,
    input logic [11:0] s_axil_araddr,
    input logic s_axil_rready,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    input logic m_tready
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
  logic [1:0] s_axil_bresp, s_axil_rresp;
  logic [31:0] s_axil_rdata;
  logic s_tready, m_tlast, m_tuser, m_tvalid;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  lb_top #(
      .Width(Width)
  ) dut (
      .rst(!begun),
      .*
  );

  logic frame_is_legal, frame_is_stable, answer_is_legal, answer_is_stable, m_is_legal, m_is_stable;
  stream_rules #(
      .Width(Width)
  ) frame_rules (
      .clk(clk),
      .rst(!begun),
      .tdata(dut.frame_data),
      .tkeep(dut.frame_keep),
      .tlast(dut.frame_last),
      .tuser(dut.frame_user),
      .tvalid(dut.frame_valid),
      .tready(dut.frame_ready),
      .is_stable(frame_is_stable),
      .is_legal(frame_is_legal)
  );
  stream_rules #(
      .Width(Width)
  ) answer_rules (
      .clk(clk),
      .rst(!begun),
      .tdata(dut.answer_data),
      .tkeep(dut.answer_keep),
      .tlast(dut.answer_last),
      .tuser(1'b0),
      .tvalid(dut.answer_valid),
      .tready(dut.answer_ready),
      .is_stable(answer_is_stable),
      .is_legal(answer_is_legal)
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

  // The beat that was taken last, from which of the two streams it came, and whether it was taken just now.
  typedef logic [Width+Bytes+1:0] beat_t;
  logic takes_frame, takes_answer, was_taken, was_answer, waited;
  beat_t taken;
  assign takes_frame = dut.frame_valid && dut.frame_ready;
  assign takes_answer = dut.answer_valid && dut.answer_ready;
  always_ff @(posedge clk) begin
    was_taken <= (takes_frame || takes_answer) && begun;
    waited <= m_tvalid && !m_tready && begun;
    if (takes_frame) taken <= {dut.frame_data, dut.frame_keep, dut.frame_last, dut.frame_user};
    if (takes_answer) taken <= {dut.answer_data, dut.answer_keep, dut.answer_last, 1'b0};
    if (takes_frame || takes_answer) was_answer <= takes_answer;
  end

  // Whether a frame is open at the output in front of the beat that is offered, and whether it is an answer.
  logic was_open, open_answer;
  always_ff @(posedge clk) begin
    if (m_tvalid && m_tready) {was_open, open_answer} <= {!m_tlast, was_answer};
    if (!begun) was_open <= 1'b0;
  end

  always_comb begin
    if (begun) begin
      frame_follows_rules : assume (frame_is_legal && frame_is_stable);
      answer_follows_rules : assume (answer_is_legal && answer_is_stable);

      knows_begin : assert (dut.is_first == (m_tvalid ? m_tlast : !was_open));
      knows_answer : assert (dut.is_first || dut.is_answer == (m_tvalid ? was_answer : open_answer));

      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);
      one_is_taken : assert (!takes_frame || !takes_answer);
      what_is_taken_leaves :
      assert (m_tvalid == (was_taken || waited) && (!m_tvalid || {m_tdata, m_tkeep, m_tlast, m_tuser} == taken));
      beats_stay_together : assert (!m_tvalid || !was_open || was_answer == open_answer);

      answer_comes_first : cover (takes_answer && dut.frame_valid && dut.is_first && m_tvalid);
      answer_waits_for_frame : cover (takes_frame && dut.answer_valid && was_open && !was_answer);
      frame_waits_for_answer : cover (m_tvalid && m_tlast && was_open && was_answer && dut.frame_valid);
    end
  end

endmodule
