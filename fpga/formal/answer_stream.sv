// Proves of `lb_answers` that the stream of answers follows the rules of AXI4-Stream, and that an answer ends. Nothing that comes changes an answer
// while it leaves.
//
// Assumed: the input's beats are legal. Valid and ready may rise and fall at any time; tables, images and addresses may change.
module answer_stream
  import lb_tables_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic [47:0] own_mac,
    input write_t write,
    input logic image,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    input logic m_tready
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic m_tlast, m_tvalid;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  lb_answers #(
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
      .tuser(1'b0),
      .tvalid(m_tvalid),
      .tready(m_tready),
      .is_stable(m_is_stable),
      .is_legal(m_is_legal)
  );

  // The states of the module in which a frame may come, and in which an answer leaves.
  localparam logic [1:0] Receives = 2'd0;
  localparam logic [1:0] Reads = 2'd2;
  localparam logic [1:0] Sends = 2'd3;
  logic receives, leaves, is_last_legal, is_out_legal;
  assign receives = dut.state == Receives;
  assign leaves = dut.state inside {Reads, Sends};
  assign is_last_legal = (dut.last_keep & ~(dut.last_keep << 1)) == Bytes'(1);
  assign is_out_legal = (dut.out_keep & ~(dut.out_keep << 1)) == Bytes'(1);

  always_comb begin
    if (begun) begin
      legal_input : assume (s_is_legal);

      // No frame is taken while one is answered.
      frame_is_over : assert (!dut.is_done || receives && dut.is_first);
      frame_is_ignored : assert (receives || dut.is_first || !dut.is_taken);
      last_is_legal : assert ((receives && !dut.is_done) || is_last_legal);
      out_is_legal : assert (!leaves || is_out_legal);
      memory_is_read : assert (!m_tvalid || dut.stored == dut.beats[dut.out_at]);

      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);
      answer_ends : assert (!leaves || dut.out_at <= dut.out_last);

      answer_waits : cover (m_tvalid && !m_tready && m_tlast && !m_tkeep[Bytes-1] && s_tvalid);
    end
  end

endmodule
