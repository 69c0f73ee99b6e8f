// Proves of `eth_add` that its output follows the rules of AXI4-Stream, and that each packet leaves as one frame.
//
// Assumed: the input's beats are legal. Valid and ready may rise and fall at any time, and all addresses may change.
module add_stream #(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic [47:0] own_mac,
    input logic [47:0] hop_mac,
    input logic [47:0] s_mac,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    input logic m_tready
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic s_tready, m_tlast, m_tuser, m_tvalid;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  eth_add #(
      .Width(Width)
  ) dut (
      .rst(!begun),
      .*
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

  // Whether a frame is open at the output: behind the last beat that left, and behind the one that is offered.
  logic was_open, is_open;
  assign is_open = m_tvalid ? !m_tlast : was_open;
  always_ff @(posedge clk) was_open <= begun && (m_tready ? is_open : was_open);

  always_comb begin
    if (begun) begin
      legal_input : assume (s_is_legal);

      rest_is_legal : assert (!dut.has_rest || (dut.rest_keep & ~(dut.rest_keep << 1)) == 14'd1);
      rest_is_next : assert (!dut.has_rest || dut.is_first);

      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);
      packet_is_one_frame : assert (is_open == (!dut.is_first || dut.has_rest));

      rest_leaves : cover (m_tvalid && m_tready && m_tlast && m_tkeep[1] && !m_tkeep[2] && was_open);
      packet_follows : cover (m_tvalid && !m_tready && !m_tlast && s_tvalid);
    end
  end

endmodule
