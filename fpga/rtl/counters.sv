// Counts packets and their bytes in a memory of many entries.
//
//   add or take -> memory (2) -> sum (1) -> memory
//
// add_*: adds one packet with add_bytes bytes to an entry. One packet per cycle can be added; there is no back-pressure.
// take_*: reads an entry and sets it to 0, so that nothing is lost between two reads. A request is taken when take_valid and take_ready are high,
//   which is in a cycle without add_valid. Its answer comes 3 cycles later, with taken_valid.
//
// The entries hold anything when the module is switched on: take each of them once.
module counters
  import lb_pkg::*;
#(
    parameter int Bits = 10
) (
    input logic clk,
    input logic rst,
    input logic add_valid,
    input logic [Bits-1:0] add_index,
    input logic [15:0] add_bytes,
    input logic take_valid,
    output logic take_ready,
    input logic [Bits-1:0] take_index,
    output logic taken_valid,
    output traffic_t taken
);

  typedef struct packed {
    logic adds;
    logic takes;
    logic [Bits-1:0] index;
    logic [15:0] bytes;
  } work_t;

  assign take_ready = !add_valid;
  work_t work0, work1, work2;
  always_comb begin
    work0 = '{adds: add_valid, takes: take_valid && take_ready, index: add_valid ? add_index : take_index, bytes: add_bytes};
  end

  // The values that were computed last, the newest first. The memory's output does not have them yet.
  localparam int Late = 3;
  traffic_t entries[1 << Bits];
  traffic_t read1, read2, old, news[Late];
  logic is_new[Late];
  logic [Bits-1:0] places[Late];
  always_comb begin
    old = read2;
    for (int i = Late - 1; i >= 0; i--) if (is_new[i] && places[i] == work2.index) old = news[i];
  end

  always_ff @(posedge clk) begin
    read1 <= entries[work0.index];
    read2 <= read1;
    if (is_new[0]) entries[places[0]] <= news[0];

    work1 <= work0;
    work2 <= work1;
    is_new[0] <= work2.adds || work2.takes;
    places[0] <= work2.index;
    news[0] <= work2.takes ? '0 : '{bytes: old.bytes + 48'(work2.bytes), packets: old.packets + 40'd1};
    for (int i = 1; i < Late; i++) {is_new[i], places[i], news[i]} <= {is_new[i-1], places[i-1], news[i-1]};
    taken_valid <= work2.takes;
    taken <= old;
    if (rst) begin
      {work1.adds, work1.takes, work2.adds, work2.takes} <= '0;
      for (int i = 0; i < Late; i++) is_new[i] <= 1'b0;
      taken_valid <= 1'b0;
    end
  end

endmodule
