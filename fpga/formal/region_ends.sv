// `region_bounds` computes from two numbers whether an access lies in a region. This harness proves that the result is right: the access does not
// begin before the region, and does not end after it. The sums here are wide enough, so that they cannot wrap.
module region_ends (
    input logic clk,
    input logic [63:0] access,
    input logic [31:0] access_length,
    input logic [63:0] region,
    input logic [63:0] region_length
);

  // Bit 64 of each is the borrow.
  logic [64:0] offset, left;
  assign offset = {1'b0, access} - {1'b0, region};
  assign left = {1'b0, region_length} - {1'b0, offset[63:0]};

  logic [65:0] access_end, region_end;
  assign access_end = 66'(access) + 66'(access_length);
  assign region_end = 66'(region) + 66'(region_length);

  logic is_within;
  assign is_within = !offset[64] && !left[64] && left[63:0] >= 64'(access_length);

  always_comb begin
    ends_are_within : assert (is_within == (access >= region && access_end <= region_end));

    access_is_within : cover (is_within && access_length != '0);
    end_is_outside : cover (!is_within && access > region && access_end == region_end + 66'd1);
  end

endmodule
