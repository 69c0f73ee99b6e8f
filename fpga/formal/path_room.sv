// Proves of `lb_path` that no queue in it overflows, whatever comes: `Slack` is enough. It proves, too, that each packet which came is in
// exactly one place, that its route and its head wait for it together, and that it is done once.
//
// The tables, the fields of headers and the data have no part in this.
module path_room
  import lb_pkg::*;
  import lb_tables_pkg::*;
#(
    parameter int Width = 128,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input write_t write,
    input logic image,
    input logic hold,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    input logic m_tready
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic s_tready, m_tlast, m_tuser, m_tvalid, done_valid, is_empty;
  logic [47:0] m_mac;
  done_t done;
  logic [Width-1:0] m_tdata;
  logic [Bytes-1:0] m_tkeep;
  route_t done_route;
  lb_path #(
      .Width(Width)
  ) dut (
      .rst(!begun),
      .*
  );

  // The number of packets and of beats that the queues can hold.
  localparam int Most = 1 << 7;
  localparam int MostBeats = 1 << 9;
  typedef logic [10:0] number_t;

  // Element i: the number of keys that are in the stages 1 to i of the look-up.
  localparam int Latency = 38;
  number_t up_to[Latency];
  logic [Latency-1:1] is_counted;
  always_ff @(posedge clk) for (int i = 1; i < Latency; i++) up_to[i] <= begun ? up_to[i-1] + number_t'(dut.key_valid) : '0;
  assign up_to[0] = '0;
  for (genvar i = 1; i < Latency; i++) begin : gen_counted
    assign is_counted[i] = up_to[i] == up_to[i-1] + number_t'(dut.lookup.valid[i]);
  end
  number_t searched;
  assign searched = up_to[Latency-1] + number_t'(dut.found_valid);

  // The numbers of packets whose key is being read from their headers, of those whose key is looked up, and of those whose route waits.
  number_t parsed, routes, heads, known;
  assign parsed = number_t'(dut.parse.done1) + number_t'(dut.parse.done2) + number_t'(dut.parse.done3) + number_t'(dut.key_valid);
  assign routes = number_t'(dut.unused_routes) + number_t'(dut.route_valid);
  assign heads = number_t'(dut.unused_heads) + number_t'(dut.unused_head_valid);
  assign known = parsed + searched + routes + number_t'(dut.rewrite.has1) + number_t'(dut.rewrite.has2);

  // is_coming: beats of a packet come whose key has not been read. is_leaving: the last beat of a packet waits in lb_rewrite.
  logic is_coming, is_leaving;
  assign is_coming = !dut.is_first && !dut.parse.is_full && !dut.parse.skips;
  assign is_leaving = dut.rewrite.valid3 && dut.rewrite.last3;

  always_comb begin
    if (begun) begin
      keys_are_counted : assert (&is_counted);
      beats_have_room : assert (number_t'(dut.beats) + number_t'(dut.cut_valid) <= number_t'(MostBeats - 7));
      begins_together : assert (dut.parse.first == dut.is_first);
      parser_is_in_one_state :
      assert (!dut.parse.is_full && !dut.parse.skips || !dut.parse.first && !(dut.parse.is_full && dut.parse.skips));
      packets_are_few : assert (number_t'(dut.packets) <= number_t'(Most - 8));
      packets_are_known : assert (known + number_t'(is_leaving) + number_t'(is_coming) == number_t'(dut.packets));
      heads_wait_with_routes : assert (heads == searched + routes);
      head_is_next : assert (dut.unused_head_valid || number_t'(dut.unused_heads) == number_t'(dut.lookup.valid[1]));
      route_has_head : assert (!dut.route_valid || dut.unused_head_valid);
      routes_have_room : assert (dut.unused_routes < 8'(Most) && dut.unused_heads < 8'(Most));

      packets_follow : cover (known > number_t'(2) && dut.unused_head_valid);
      padding_comes : cover (dut.parse.skips && dut.comes && known != '0);
    end
  end

endmodule
