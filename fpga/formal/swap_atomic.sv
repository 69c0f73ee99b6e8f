// Proves of `lb_sets` that the image in use changes only while lb_path is held and empty, that no entry of it is ever written, and that a swap
// either changes it or is refused and then leaves it. A swap is refused exactly if the newest tick of a load balancer that it guards is at or
// above the guard, and this tick is that of all packets before the swap.
//
// lb_path is not here. What it must do is assumed, and `path_room` proves that it does: it stays empty while it is held, and no packet is done
// while it is empty. What comes over AXI-Lite is free.
module swap_atomic
  import lb_pkg::*;
  import lb_tables_pkg::*;
  import lb_csr_pkg::*;
(
    input logic clk,
    input logic s_axil_awvalid,
    input logic [11:0] s_axil_awaddr,
    input logic s_axil_wvalid,
    input logic [31:0] s_axil_wdata,
    input logic s_axil_bready,
    input logic s_axil_arvalid,
    input logic [11:0] s_axil_araddr,
    input logic s_axil_rready,
    input logic is_empty,
    input logic done_valid,
    input done_t done
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
  logic [1:0] s_axil_bresp, s_axil_rresp;
  logic [31:0] s_axil_rdata;
  logic [47:0] own_mac, hop_mac;
  write_t write;
  logic image, hold;
  lb_sets dut (
      .rst(!begun),
      .*
  );

  // ------------------------------------------------------------------ the cycle before, and the swap that goes on

  // Whether the path was held and empty in the cycle before. A reset empties it.
  logic was_empty, was_busy, image_before;
  // What was written last to begin something: whether it was a swap, the load balancers that it guards, the image at that time. are_guards_kept:
  // no guard was written since then.
  logic is_swap, are_guards_kept, image_at_begin;
  logic [Lbs-1:0] guarded;
  logic writes;
  assign writes = s_axil_awvalid && s_axil_awready && s_axil_wvalid && s_axil_wready;
  always_ff @(posedge clk) begin
    was_empty <= hold && is_empty || !begun;
    was_busy <= dut.is_busy && begun;
    image_before <= image && begun;
    if (writes && !dut.is_busy) begin
      is_swap <= s_axil_awaddr == Swap;
      guarded <= s_axil_wdata[Lbs-1:0];
      image_at_begin <= image;
      are_guards_kept <= 1'b1;
    end else if (writes && s_axil_awaddr >= Guards && s_axil_awaddr < Horizons) are_guards_kept <= 1'b0;
  end

  // The write of the cycle before.
  logic wrote;
  logic [11:0] wrote_at;
  logic [17:0] wrote_data;
  always_ff @(posedge clk) begin
    wrote <= writes && begun;
    {wrote_at, wrote_data} <= {s_axil_awaddr, s_axil_wdata[17:0]};
  end

  logic ends;
  assign ends = was_busy && !dut.is_busy && is_swap;

  // The load balancers that refuse.
  logic [Lbs-1:0] late, checked;
  for (genvar lb = 0; lb < Lbs; lb++) begin : gen_late
    assign late[lb] = guarded[lb] && dut.has_newest[lb] && dut.newest[lb] >= {dut.guards[2*lb+1], dut.guards[2*lb]};
    assign checked[lb] = dut.at > 4'(lb);
  end

  // The states of lb_sets.
  logic is_emptying, is_settling, is_checking, is_swapping;
  assign is_emptying = 3'(dut.state) == 3'd1;
  assign is_settling = 3'(dut.state) == 3'd2;
  assign is_checking = 3'(dut.state) == 3'd3;
  assign is_swapping = is_emptying || is_settling || is_checking;

  // The number of cycles that packets are held although the path is empty.
  logic [4:0] held;
  always_ff @(posedge clk) held <= (is_settling || is_checking) && begun ? held + 5'd1 : '0;

  // ------------------------------------------------------------------ what is proved

  always_comb begin
    if (begun) begin
      held_path_stays_empty : assume (!was_empty || is_empty);
      empty_path_is_quiet : assume (!is_empty || !done_valid);

      // The image.
      changes_while_empty : assert (image == image_before || was_empty);
      changes_with_swap : assert (image == image_before || ends && !dut.is_refused);
      either_changes_or_refuses : assert (!ends || (image != image_at_begin) == !dut.is_refused);
      refuses_if_late : assert (!ends || !are_guards_kept || dut.is_refused == (late != '0));

      // The entries: no write goes to the image that is in use, or that was in use in the cycle before.
      other_image_is_written : assert (write.which == NoTable || write.image != image && write.image != image_before);
      swap_sees_no_write : assert (!dut.is_busy || write.which == NoTable);

      entry_is_written :
      assert (write.which == NoTable || wrote && wrote_at == Entry && {write.which, write.image, write.index} == wrote_data);

      // The answers tell what was done.
      entry_is_answered :
      assert (!wrote || wrote_at != Entry || write.which == (s_axil_bresp == 2'b00 ? table_e'(wrote_data[17:15]) : NoTable));
      swap_is_answered : assert (!wrote || wrote_at != Swap || (s_axil_bresp == 2'b00) == !was_busy);

      // The swap itself.
      swap_goes_on : assert (!dut.is_busy || is_swap == is_swapping);
      swap_holds : assert (!is_swapping || hold && is_swap && dut.guarded == guarded && image == image_at_begin);
      path_is_empty : assert (!is_settling && !is_checking || is_empty && was_empty);
      all_are_counted : assert (!is_checking || !dut.counters.valid1);
      packets_are_held_shortly : assert (held <= 5'd17);
      settles : assert (!is_settling || dut.at == held[3:0] && held <= 5'd7 && (held == '0 || !dut.counters.valid1));
      checks : assert (!is_checking || 5'(dut.at) + 5'd8 == held && dut.at <= 4'(Lbs));
      reasons_begin_empty : assert (!is_emptying && !is_settling || dut.reasons == '0);
      reasons_are_late :
      assert (!is_checking || (dut.reasons & ~checked) == '0 && (!are_guards_kept || dut.reasons == (late & checked)));

      swap_is_done : cover (ends && !dut.is_refused && guarded != '0 && dut.has_newest != '0);
      swap_is_refused : cover (ends && dut.is_refused);
      old_image_is_written : cover (write.which == Members && !write.image);
    end
  end

endmodule
