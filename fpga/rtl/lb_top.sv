// The load balancer from Ethernet frames to Ethernet frames, with its registers.
//
//   frames ─┬─► eth_strip ─► lb_path ─► eth_add ─┬─► frames
//           └─► lb_answers ──────────────────────┘
//   AXI-Lite ─► lb_sets ─► tables, images, counters
//
// s_*, m_*: frames without preamble and check sequence, with valid and ready. With 512 bits, the first beat of a forwarded frame leaves less than 64
//   cycles after it came if nothing stops it. tuser of the last beat marks a frame as bad, which its MAC must not send.
// s_axil_*: the registers of lb_csr_pkg.
//
// The module forwards packets to own_mac, as the Rust type ejfat::lb::DataPlane does, and answers ARP, neighbour solicitations and echo requests.
module lb_top
  import lb_pkg::*;
  import lb_tables_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic s_axil_awvalid,
    output logic s_axil_awready,
    input logic [11:0] s_axil_awaddr,
    input logic s_axil_wvalid,
    output logic s_axil_wready,
    input logic [31:0] s_axil_wdata,
    output logic s_axil_bvalid,
    input logic s_axil_bready,
    output logic [1:0] s_axil_bresp,
    input logic s_axil_arvalid,
    output logic s_axil_arready,
    input logic [11:0] s_axil_araddr,
    output logic s_axil_rvalid,
    input logic s_axil_rready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    output logic s_tready,
    output logic [Width-1:0] m_tdata,
    output logic [Bytes-1:0] m_tkeep,
    output logic m_tlast,
    output logic m_tuser,
    output logic m_tvalid,
    input logic m_tready
);

  // ------------------------------------------------------------------ registers

  logic [47:0] own_mac, hop_mac;
  write_t write;
  logic image, hold, is_empty, done_valid;
  done_t done;
  lb_sets sets (
      .clk(clk),
      .rst(rst),
      .s_axil_awvalid(s_axil_awvalid),
      .s_axil_awready(s_axil_awready),
      .s_axil_awaddr(s_axil_awaddr),
      .s_axil_wvalid(s_axil_wvalid),
      .s_axil_wready(s_axil_wready),
      .s_axil_wdata(s_axil_wdata),
      .s_axil_bvalid(s_axil_bvalid),
      .s_axil_bready(s_axil_bready),
      .s_axil_bresp(s_axil_bresp),
      .s_axil_arvalid(s_axil_arvalid),
      .s_axil_arready(s_axil_arready),
      .s_axil_araddr(s_axil_araddr),
      .s_axil_rvalid(s_axil_rvalid),
      .s_axil_rready(s_axil_rready),
      .s_axil_rdata(s_axil_rdata),
      .s_axil_rresp(s_axil_rresp),
      .own_mac(own_mac),
      .hop_mac(hop_mac),
      .write(write),
      .image(image),
      .hold(hold),
      .is_empty(is_empty),
      .done_valid(done_valid),
      .done(done)
  );

  // ------------------------------------------------------------------ packets

  logic [Width-1:0] in_data;
  logic [Bytes-1:0] in_keep;
  logic in_last, in_user, in_valid, in_ready;
  eth_strip #(
      .Width(Width)
  ) strip (
      .clk(clk),
      .rst(rst),
      .own_mac(own_mac),
      .s_tdata(s_tdata),
      .s_tkeep(s_tkeep),
      .s_tlast(s_tlast),
      .s_tuser(s_tuser),
      .s_tvalid(s_tvalid),
      .s_tready(s_tready),
      .m_tdata(in_data),
      .m_tkeep(in_keep),
      .m_tlast(in_last),
      .m_tuser(in_user),
      .m_tvalid(in_valid),
      .m_tready(in_ready)
  );

  logic [Width-1:0] out_data;
  logic [Bytes-1:0] out_keep;
  logic out_last, out_user, out_valid, out_ready;
  logic [47:0] out_mac;
  route_t unused_route;
  lb_path #(
      .Width(Width),
      .Answers(1)
  ) path (
      .clk(clk),
      .rst(rst),
      .write(write),
      .image(image),
      .hold(hold),
      .s_tdata(in_data),
      .s_tkeep(in_keep),
      .s_tlast(in_last),
      .s_tuser(in_user),
      .s_tvalid(in_valid),
      .s_tready(in_ready),
      .m_tdata(out_data),
      .m_tkeep(out_keep),
      .m_tlast(out_last),
      .m_tuser(out_user),
      .m_tvalid(out_valid),
      .m_mac(out_mac),
      .m_tready(out_ready),
      .is_empty(is_empty),
      .done_valid(done_valid),
      .done_route(unused_route),
      .done(done)
  );

  logic [Width-1:0] frame_data;
  logic [Bytes-1:0] frame_keep;
  logic frame_last, frame_user, frame_valid, frame_ready;
  eth_add #(
      .Width(Width)
  ) add (
      .clk(clk),
      .rst(rst),
      .own_mac(own_mac),
      .hop_mac(hop_mac),
      .s_mac(out_mac),
      .s_tdata(out_data),
      .s_tkeep(out_keep),
      .s_tlast(out_last),
      .s_tuser(out_user),
      .s_tvalid(out_valid),
      .s_tready(out_ready),
      .m_tdata(frame_data),
      .m_tkeep(frame_keep),
      .m_tlast(frame_last),
      .m_tuser(frame_user),
      .m_tvalid(frame_valid),
      .m_tready(frame_ready)
  );

  // ------------------------------------------------------------------ answers

  logic [Width-1:0] answer_data;
  logic [Bytes-1:0] answer_keep;
  logic answer_last, answer_valid, answer_ready;
  lb_answers #(
      .Width(Width)
  ) answers (
      .clk(clk),
      .rst(rst),
      .own_mac(own_mac),
      .write(write),
      .image(image),
      .s_tdata(s_tdata),
      .s_tkeep(s_tkeep),
      .s_tlast(s_tlast),
      .s_tuser(s_tuser),
      .s_tvalid(s_tvalid && s_tready),
      .m_tdata(answer_data),
      .m_tkeep(answer_keep),
      .m_tlast(answer_last),
      .m_tvalid(answer_valid),
      .m_tready(answer_ready)
  );

  // ------------------------------------------------------------------ one frame after the other

  // An answer leaves before the next packet; a frame that has begun is completed.
  logic is_first, is_answer, answers_now, runs;
  assign runs = m_tready || !m_tvalid;
  assign answers_now = is_first ? answer_valid : is_answer;
  assign answer_ready = runs && answers_now;
  assign frame_ready = runs && !answers_now;
  always_ff @(posedge clk) begin
    if (runs) begin
      m_tvalid <= answers_now ? answer_valid : frame_valid;
      m_tdata <= answers_now ? answer_data : frame_data;
      m_tkeep <= answers_now ? answer_keep : frame_keep;
      m_tlast <= answers_now ? answer_last : frame_last;
      m_tuser <= !answers_now && frame_user;
      if (answers_now ? answer_valid : frame_valid) begin
        is_first <= answers_now ? answer_last : frame_last;
        is_answer <= answers_now;
      end
    end
    if (rst) begin
      is_first <= 1'b1;
      m_tvalid <= 1'b0;
    end
  end

endmodule
