// The rules of AXI4-Stream. A harness assumes them of what goes into a module, and proves them of what comes out.
//
// is_stable: a beat that was not taken in the last cycle is still there, unchanged. is_legal: the bytes of the beat are contiguous from byte 0,
// there is at least one, and only the last beat of a packet has fewer than all. It is high while there is no beat.
module stream_rules #(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic [Width-1:0] tdata,
    input logic [Bytes-1:0] tkeep,
    input logic tlast,
    input logic tuser,
    input logic tvalid,
    input logic tready,
    output logic is_stable,
    output logic is_legal
);

  logic waited;
  logic [Width+Bytes+1:0] beat;
  always_ff @(posedge clk) begin
    waited <= tvalid && !tready && !rst;
    beat <= {tdata, tkeep, tlast, tuser};
  end

  assign is_stable = !waited || tvalid && {tdata, tkeep, tlast, tuser} == beat;
  assign is_legal = !tvalid || tkeep[0] && (tkeep & (tkeep + 1'b1)) == '0 && (tlast || &tkeep);

endmodule
