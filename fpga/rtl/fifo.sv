// A queue. It holds 2^Bits entries in a memory, and one more at its output.
//
// An entry comes out 2 cycles after it was put in, or later; one entry comes out per cycle. The queue does not check whether it is full: the
// module that fills it must stop before `count` is 2^Bits.
module fifo #(
    parameter int Width = 32,
    parameter int Bits = 6
) (
    input logic clk,
    input logic rst,
    input logic in_valid,
    input logic [Width-1:0] in_data,
    output logic out_valid,
    input logic out_ready,
    output logic [Width-1:0] out_data,
    // The number of entries in the memory. The entry at the output is not counted.
    output logic [Bits:0] count
);

  logic [Width-1:0] entries[1 << Bits];
  logic [Bits:0] head, tail;
  logic reads;
  assign count = tail - head;
  assign reads = count != '0 && (!out_valid || out_ready);

  always_ff @(posedge clk) begin
    if (in_valid) entries[tail[Bits-1:0]] <= in_data;
    if (reads) out_data <= entries[head[Bits-1:0]];
    if (in_valid) tail <= tail + 1'b1;
    if (reads) head <= head + 1'b1;
    out_valid <= reads || out_valid && !out_ready;
    if (rst) begin
      {head, tail} <= '0;
      out_valid <= 1'b0;
    end
  end

endmodule
