// Proves of `fifo` that the n-th entry that leaves is the n-th that was put in, for every n.
//
// The harness follows one entry, which may be any (`chosen`). It counts the entries before it until the entry leaves.
//
// Assumed: nothing is put in while the memory is full.
module fifo_order #(
    parameter int Width = 8,
    parameter int Bits = 2
) (
    input logic clk,
    input logic in_valid,
    input logic [Width-1:0] in_data,
    input logic out_ready,
    input logic chosen
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic out_valid;
  logic [Width-1:0] out_data;
  logic [Bits:0] count;
  fifo #(
      .Width(Width),
      .Bits(Bits)
  ) dut (
      .clk(clk),
      .rst(!begun),
      .in_valid(in_valid),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data),
      .count(count)
  );

  logic leaves;
  assign leaves = out_valid && out_ready;

  // The number of entries that were put in and have not left. It is counted at the ports.
  logic [Bits+1:0] held;
  always_ff @(posedge clk) begin
    held <= begun ? held + (Bits + 2)'(in_valid) - (Bits + 2)'(leaves) : '0;
  end

  // The entry that is followed, and the number of entries before it.
  logic follows;
  logic [Width-1:0] followed;
  logic [Bits+1:0] ahead;
  always_ff @(posedge clk) begin
    if (follows) begin
      ahead <= ahead - (Bits + 2)'(leaves);
      if (leaves && ahead == '0) follows <= 1'b0;
    end else begin
      follows <= in_valid && chosen;
      followed <= in_data;
      ahead <= held - (Bits + 2)'(leaves);
    end
    if (!begun) follows <= 1'b0;
  end

  // Values of the cycle before.
  logic waited, had_entry;
  logic [Width-1:0] waited_data;
  always_ff @(posedge clk) begin
    waited <= begun && out_valid && !out_ready;
    waited_data <= out_data;
    had_entry <= begun && count != '0;
  end

  logic is_full;
  logic [Bits-1:0] place;
  assign is_full = count == (Bits + 1)'(1 << Bits);
  assign place = dut.head[Bits-1:0] + Bits'(ahead) - Bits'(out_valid);

  always_comb begin
    if (begun) begin
      assume (!in_valid || !is_full);

      held_is_counted : assert (held == (Bits + 2)'(count) + (Bits + 2)'(out_valid));
      count_is_bounded : assert (count <= (Bits + 1)'(1 << Bits));
      entry_is_held : assert (!follows || ahead < held);
      entry_leaves_unchanged : assert (!follows || !out_valid || ahead != '0 || out_data == followed);
      entry_waits_unchanged : assert (!follows || out_valid && ahead == '0 || dut.entries[place] == followed);
      output_waits : assert (!waited || out_valid && out_data == waited_data);
      entries_come_out : assert (!had_entry || out_valid);

      entry_leaves : cover (follows && leaves && ahead == '0 && held > (Bits + 2)'(2));
      entry_has_waited : cover (follows && ahead == (Bits + 2)'(2) && waited);
    end
  end

endmodule
