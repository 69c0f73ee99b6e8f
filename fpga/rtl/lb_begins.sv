// Counts the begins of an image that are at or before a tick of a load balancer. The begins are in a search tree of 12 levels, and each level
// has a memory of its own. The root is place 1; the children of place n are the places 2n and 2n + 1. Unused places hold the highest value.
//
// The module takes one key per cycle, and the count comes 25 cycles later. There is no back-pressure.
module lb_begins
  import lb_pkg::*;
  import lb_tables_pkg::*;
(
    input logic clk,
    input logic write,
    input logic write_image,
    input place_t write_place,
    input begin_t write_begin,
    input logic image,
    input begin_t key,
    output logic [RangeBits-1:0] count
);

  // Element i has one bit for each level above level i, that of the root first: 1 if the search went to the right there.
  logic [RangeBits-1:0] path[RangeBits+1];
  logic images[RangeBits+1];
  begin_t keys[RangeBits+1];

  always_ff @(posedge clk) begin
    path[0] <= '0;
    images[0] <= image;
    keys[0] <= key;
  end

  for (genvar level = 0; level < RangeBits; level++) begin : gen_level
    localparam int Bits = level == 0 ? 1 : level;
    begin_t begins[2 << Bits];
    begin_t begin1, key1;
    logic [RangeBits-2:0] path1;
    logic image1;

    logic is_here;
    assign is_here = write && write_place >> level == RangeBits'(1);
    logic [Bits-1:0] place, below;
    assign place = level == 0 ? '0 : path[level][Bits-1:0];
    assign below = level == 0 ? '0 : write_place[Bits-1:0];

    always_ff @(posedge clk) begin
      if (is_here) begins[{write_image, below}] <= write_begin;
      begin1 <= begins[{images[level], place}];
      {path1, image1, key1} <= {path[level][RangeBits-2:0], images[level], keys[level]};

      path[level+1] <= {path1, key1 >= begin1};
      {images[level+1], keys[level+1]} <= {image1, key1};
    end
  end

  assign count = path[RangeBits];

endmodule
