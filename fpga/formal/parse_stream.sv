// Proves of `lb_parse` that the beats of its output are legal, and that each frame leaves as one packet, whatever its IP header says.
//
// Assumed: the input's beats are legal. The output has no ready: all of its beats are taken at once.
module parse_stream
  import lb_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic m_tlast, m_tuser, m_tvalid, key_valid;
  key_t key;
  head_t head;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  lb_parse #(
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
      .tready(1'b1),
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
      .tready(1'b1),
      .is_stable(m_is_stable),
      .is_legal(m_is_legal)
  );

  // Whether a packet is open at the output: in front of the beat that is offered, and behind it.
  logic was_open, is_open;
  assign is_open = m_tvalid ? !m_tlast : was_open;
  always_ff @(posedge clk) was_open <= begun && is_open;

  always_comb begin
    if (begun) begin
      legal_input : assume (s_is_legal);

      skips_within_frame : assert (!dut.skips || !dut.first);

      nothing_leaves_in_reset : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);
      frame_is_one_packet : assert (is_open == (!dut.first && !dut.skips));

      padding_is_cut : cover (m_tvalid && m_tlast && was_open && !m_tkeep[1] && dut.skips && s_tvalid);
      short_packet_leaves : cover (m_tvalid && m_tlast && m_tuser && was_open && !m_tkeep[1] && dut.first);
    end
  end

endmodule
