// Proves of `eth_strip` that its output follows the rules of AXI4-Stream, whatever the frames carry.
//
// Assumed: the input's beats are legal. Valid and ready may rise and fall at any time, and own_mac may change.
module strip_stream #(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic [47:0] own_mac,
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
  eth_strip #(
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

  // The bytes of an Ethernet header. What waits in the module has more if nothing is put behind it.
  localparam int Header = 14;
  logic is_inside;
  assign is_inside = !dut.is_first && !dut.skips;

  always_comb begin
    if (begun) begin
      legal_input : assume (s_is_legal);

      // A beat waits for the next one of its frame exactly while this one has not come.
      waits_for_rest : assert (is_inside == (dut.valid1 && !dut.last1));
      waiting_is_legal :
      assert (!dut.valid1 || (dut.keep1 & ~(dut.keep1 << 1)) == Bytes'(1) && (dut.last1 ? dut.keep1[Header] : &dut.keep1));

      output_is_stable : assert (m_is_stable);
      output_is_legal : assert (m_is_legal);

      long_frame_leaves : cover (m_tvalid && m_tready && m_tlast && !m_tkeep[1] && !dut.valid1 && s_tvalid);
      rest_is_merged : cover (m_tvalid && !m_tready && m_tlast && m_tkeep[Bytes-2] && !m_tkeep[Bytes-1]);
      alien_waits : cover (m_tvalid && !m_tready && m_tlast && m_tuser && dut.skips);
    end
  end

endmodule
