// Proves of `icrc512` that its output follows the rules of AXI4-Stream, whether the CRC is checked or written.
//
// Assumed: the input's beats are legal. Valid and ready may rise and fall at any time.
module icrc_stream (
    input logic clk,
    input logic [511:0] s_tdata,
    input logic [63:0] s_tkeep,
    input logic s_tlast,
    input logic [1:0] s_tuser,
    input logic s_tvalid,
    input logic m_tready
);

  localparam int Width = 512;
  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic s_tready, m_tlast, m_tuser, m_tvalid;
  logic [511:0] m_tdata;
  logic [63:0] m_tkeep;
  icrc512 dut (
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
      .tuser(s_tuser[0]),
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

  // The bytes of a packet wait in a memory while the CRC is computed. Element i: if entry i belongs to a beat in some stage, its bytes are legal.
  localparam int Stages = 11;
  localparam int Entries = 16;
  logic [Stages:0] valid, last;
  assign {valid[0], last[0]} = '0;
  for (genvar i = 1; i <= Stages; i++) begin : gen_stage
    assign {valid[i], last[i]} = {dut.beat[i].valid, dut.beat[i].last};
  end
  logic [Entries-1:0] is_legal;
  for (genvar i = 0; i < Entries; i++) begin : gen_legal
    logic [63:0] keep;
    logic [3:0] stage;
    assign keep = dut.delay[i][63:0];
    assign stage = dut.written - 4'(i);
    assign is_legal[i] = stage > 4'(Stages) || !valid[stage] || (keep & ~(keep << 1)) == 64'd1 && (last[stage] || &keep);
  end

  always_comb begin
    if (begun) begin
      legal_input : assume (s_is_legal);

      waiting_is_legal : assert (&is_legal);
      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);

      short_beat_waits : cover (m_tvalid && !m_tready && m_tlast && !m_tkeep[63] && s_tvalid);
      packet_follows : cover (m_tvalid && m_tready && !m_tlast && dut.beat[Stages].valid && dut.beat[Stages].insert);
    end
  end

endmodule
