// The rules of AXI4-Stream. A harness assumes them of what goes into a module, and proves them of what comes out.
//
// is_stable: a beat that was offered and not taken in the cycle before is offered again, unchanged, and none is offered in the cycle behind a
// reset. is_legal: there is no beat, or its bytes are contiguous from byte 0, there is at least one, and all are there unless the beat is the last
// one of its packet.
//
// Bytes are contiguous from byte 0 if the only one without a byte below it is byte 0. This is said without addition: Yices 2.6.5 says that no tkeep
// of 64 ones fits `(tkeep & (tkeep + 1)) == 0` if tkeep is a concatenation. It is true of them.
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

  logic waited, was_reset;
  logic [Width+Bytes+1:0] beat;
  always_ff @(posedge clk) begin
    was_reset <= rst;
    waited <= tvalid && !tready && !rst;
    beat <= {tdata, tkeep, tlast, tuser};
  end

  assign is_stable = !(was_reset && tvalid) && (!waited || tvalid && {tdata, tkeep, tlast, tuser} == beat);
  assign is_legal = !tvalid || (tkeep & ~(tkeep << 1)) == Bytes'(1) && (tlast || &tkeep);

endmodule
