// The control side of the load balancer: a driver writes images of tables, swaps them between two packets, and reads counters, over AXI-Lite.
//
//   AXI-Lite ─► registers ─┬─► write: entries of the image that is not in use
//                          ├─► swap: hold ─► empty ─► check ─► image, or refused
//                          └─► counters
//
// A swap stops packets in front of lb_path, waits until the path is empty, and then either changes `image` or refuses. It refuses if a load
// balancer's newest tick is at or above its guard: packets of that tick met the old image, and packets that follow must not meet another one. So no
// packet is routed by a mixture of two images, and no event is split between them. A swap holds packets until those inside have left, and
// at most 18 cycles more.
//
// s_axil_*: AXI-Lite with addresses in bytes and data of 32 bits; lb_csr_pkg has the registers. wstrb is not looked at. Accesses never
//   wait for packets: while a swap or a reading of counters goes on, writes of Swap, Take and Entry do nothing and are answered with SLVERR, and
//   so are writes of entries of the image in use.
// hold: no packet may enter lb_path. A packet whose first beat has entered is completed.
// is_empty, done_valid, done: those of lb_path.
module lb_sets
  import lb_pkg::*;
  import lb_tables_pkg::*;
  import lb_csr_pkg::*;
(
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
    output logic [47:0] own_mac,
    output logic [47:0] hop_mac,
    output write_t write,
    output logic image,
    output logic hold,
    input logic is_empty,
    input logic done_valid,
    input done_t done
);

  // ------------------------------------------------------------------ AXI-Lite

  logic is_busy, writes, reads, begins, enters;
  logic [11:0] write_at, read_at;
  assign writes = s_axil_awvalid && s_axil_wvalid && (!s_axil_bvalid || s_axil_bready);
  assign reads = s_axil_arvalid && (!s_axil_rvalid || s_axil_rready);
  // A swap or a reading of counters begins, or an entry is written.
  assign begins = writes && write_at inside {Swap, Take} && !is_busy;
  assign enters = writes && write_at == Entry && !is_busy && s_axil_wdata[14] != image;
  assign s_axil_awready = writes;
  assign s_axil_wready = writes;
  assign s_axil_arready = reads;
  assign s_axil_rresp = 2'b00;
  assign write_at = s_axil_awaddr;
  assign read_at = s_axil_araddr;
  always_ff @(posedge clk) begin
    if (writes) s_axil_bresp <= write_at inside {Swap, Take, Entry} && !begins && !enters ? 2'b10 : 2'b00;
    s_axil_bvalid <= writes || s_axil_bvalid && !s_axil_bready;
    s_axil_rvalid <= reads || s_axil_rvalid && !s_axil_rready;
    if (rst) {s_axil_bvalid, s_axil_rvalid} <= '0;
  end

  function automatic logic is_in(logic [11:0] at, register_e first, int words);
    return at >= first && at < first + 12'(4 * words) && at[1:0] == '0;
  endfunction

  // ------------------------------------------------------------------ registers

  logic [7:0][31:0] data;
  logic [5:0][31:0] taken;
  logic [2*Lbs-1:0][31:0] guards, horizons;
  logic [1:0][31:0] own, hop;
  logic is_refused;
  logic [Lbs-1:0] reasons;
  assign own_mac = 48'(own);
  assign hop_mac = 48'(hop);
  always_ff @(posedge clk) begin
    if (writes) begin
      if (is_in(write_at, Data, 8)) data[write_at[4:2]] <= s_axil_wdata;
      if (is_in(write_at, Guards, 2 * Lbs)) guards[write_at[5:2]] <= s_axil_wdata;
      if (is_in(write_at, Horizons, 2 * Lbs)) horizons[write_at[5:2]] <= s_axil_wdata;
      if (is_in(write_at, OwnMac, 2)) own[write_at[2]] <= s_axil_wdata;
      if (is_in(write_at, HopMac, 2)) hop[write_at[2]] <= s_axil_wdata;
    end
    if (rst) begin
      horizons <= '1;
      {own, hop} <= '0;
    end
  end

  always_ff @(posedge clk) begin
    if (reads) begin
      s_axil_rdata <= '0;
      if (read_at == Version) s_axil_rdata <= RegisterVersion;
      if (read_at == Status) s_axil_rdata <= {16'd0, reasons, 5'd0, is_refused, is_busy, image};
      if (is_in(read_at, Taken, 6)) s_axil_rdata <= taken[read_at[4:2]];
      if (is_in(read_at, Guards, 2 * Lbs)) s_axil_rdata <= guards[read_at[5:2]];
      if (is_in(read_at, Horizons, 2 * Lbs)) s_axil_rdata <= horizons[read_at[5:2]];
      if (is_in(read_at, OwnMac, 2)) s_axil_rdata <= own[read_at[2]];
      if (is_in(read_at, HopMac, 2)) s_axil_rdata <= hop[read_at[2]];
    end
  end

  // ------------------------------------------------------------------ entries

  always_ff @(posedge clk) begin
    write <= '{
        which: enters ? table_e'(s_axil_wdata[17:15]) : NoTable,
        image: s_axil_wdata[14],
        index: s_axil_wdata[13:0],
        data: data
    };
    if (rst) write.which <= NoTable;
  end

  // ------------------------------------------------------------------ swap and counters

  typedef enum logic [2:0] {
    Idle,
    // Waits until no packet is inside.
    Empties,
    // Waits until the last packet is counted.
    Settles,
    // Compares the newest tick of one load balancer after the other.
    Checks,
    // Waits for a cycle in which no packet is counted.
    Asks,
    // Waits for the counter.
    Waits
  } state_e;

  state_e state;
  // The number of cycles that this state has lasted.
  logic [3:0] at;
  logic [Lbs-1:0] guarded;
  kind_e kind;
  logic [11:0] index;
  logic [Lbs-1:0][63:0] newest;
  logic [Lbs-1:0] has_newest;
  logic take_ready, taken_valid, is_late;
  logic [191:0] taken_now;
  logic [LbBits-1:0] lb;
  assign lb = at[LbBits-1:0];
  assign is_late = guarded[lb] && has_newest[lb] && newest[lb] >= {guards[{lb, 1'b1}], guards[{lb, 1'b0}]};
  assign is_busy = state != Idle;
  // A reading of counters makes a gap between packets if there is none.
  assign hold = state inside {Empties, Settles, Checks} || state == Asks && !take_ready;
  always_ff @(posedge clk) begin
    at <= at + 4'd1;
    case (state)
      Idle: begin
        at <= '0;
        if (begins && write_at == Swap) begin
          state <= Empties;
          guarded <= s_axil_wdata[Lbs-1:0];
          {is_refused, reasons} <= '0;
        end
        if (begins && write_at == Take) begin
          state <= Asks;
          kind <= kind_e'(s_axil_wdata[18:16]);
          index <= s_axil_wdata[11:0];
        end
      end
      Empties: begin
        at <= '0;
        if (is_empty) state <= Settles;
      end
      Settles:
      if (at == 4'd7) begin
        state <= Checks;
        at <= '0;
      end
      Checks: begin
        if (at < 4'(Lbs)) begin
          reasons[lb] <= is_late;
        end else begin
          state <= Idle;
          is_refused <= reasons != '0;
          if (reasons == '0) image <= !image;
        end
      end
      Asks: if (take_ready) state <= Waits;
      default:
      if (taken_valid) begin
        state <= Idle;
        taken <= taken_now;
      end
    endcase
    if (rst) begin
      state <= Idle;
      image <= 1'b0;
      {is_refused, reasons} <= '0;
    end
  end

  lb_counters counters (
      .clk(clk),
      .rst(rst),
      .done_valid(done_valid),
      .done(done),
      .horizons(horizons),
      .take_valid(state == Asks),
      .take_ready(take_ready),
      .take_kind(kind),
      .take_index(index),
      .taken_valid(taken_valid),
      .taken(taken_now),
      .newest(newest),
      .has_newest(has_newest)
  );

endmodule
