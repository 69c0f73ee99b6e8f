// A table of addresses. It has four ways; the hash of an address names one row in each way, and the address is in one of these four rows.
//
// The module takes one key per cycle, and the answer comes 3 cycles later. There is no back-pressure. One entry per cycle may be written
// at any time; an answer sees either the old entry or the new one, never a part of each.
module lb_addresses
  import lb_pkg::*;
  import lb_tables_pkg::*;
#(
    parameter int RowBits = 8
) (
    input logic clk,
    input logic write,
    input logic write_image,
    input logic [$clog2(Ways)-1:0] write_way,
    input logic [RowBits-1:0] write_row,
    input address_t write_entry,
    input logic image,
    input logic [AddressKeyBits-1:0] key,
    output logic hit,
    output logic [4:0] value
);

  logic [Ways-1:0][7:0] rows1;
  logic image1;
  logic [AddressKeyBits-1:0] key1, key2;

  always_ff @(posedge clk) begin
    rows1 <= hash(key);
    {image1, key1} <= {image, key};
    key2 <= key1;
  end

  logic [Ways-1:0] hits2;
  logic [Ways-1:0][4:0] values2;
  for (genvar way = 0; way < Ways; way++) begin : gen_way
    address_t entries[2 << RowBits];
    address_t entry2;
    always_ff @(posedge clk) begin
      if (write && write_way == 2'(way)) entries[{write_image, write_row}] <= write_entry;
      entry2 <= entries[{image1, rows1[way][RowBits-1:0]}];
    end
    assign hits2[way] = entry2.valid && {entry2.lb, entry2.is_v6, entry2.address} == key2;
    assign values2[way] = entry2.value & {5{hits2[way]}};
  end

  always_ff @(posedge clk) begin
    hit <= |hits2;
    value <= values2[0] | values2[1] | values2[2] | values2[3];
  end

endmodule
