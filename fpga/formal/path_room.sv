// Proves of `lb_path` that no queue in it overflows, whatever comes: `Slack` is enough. It proves, too, that each packet which came is in
// exactly one place, that its route and its head wait for it together, and that it is done once.
//
// It also proves what a swap of images needs: a path that is held and empty stays so, and in an empty path there is no key and no route. If the
// image changes only then, as `swap_atomic` proves of lb_sets, each table is read for a packet in the image in which the packet's key came, and
// the packet is counted for this one.
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
      .Width(Width),
      .Answers(1)
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

  // Whether the path was held and empty in the cycle before, and whether the image changed only after such cycles. A reset empties the path.
  logic was_empty, image_before, was_kept, is_kept;
  assign is_kept = was_kept && (image == image_before || was_empty);
  always_ff @(posedge clk) begin
    was_empty <= hold && is_empty || !begun;
    image_before <= image;
    was_kept <= is_kept || !begun;
  end

  // Element i: the image in which tables are read for the key in stage i of the look-up. Stages 4 to 28 are the search for the range, with two
  // stages for each level.
  localparam int Found = 28;
  logic [Found:1] read_image;
  assign read_image[3:1] = {image, image, dut.lookup.destinations.image1};
  for (genvar level = 0; level < RangeBits; level++) begin : gen_level
    assign read_image[4+2*level] = dut.lookup.search.images[level];
    assign read_image[5+2*level] = dut.lookup.search.gen_level[level].image1;
  end
  assign read_image[Found] = dut.lookup.search.images[RangeBits];

  // Element i: if there is a key in stage i, its image is that of the port, and tables are read in this one.
  logic [Latency-1:1] is_in_image, is_read_in_image;
  for (genvar i = 1; i < Latency; i++) begin : gen_image
    assign is_in_image[i] = !dut.lookup.valid[i] || dut.lookup.images[i] == image;
    assign is_read_in_image[i] = !dut.lookup.valid[i] || i > Found || read_image[i<Found?i : Found] == image;
  end

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

      held_path_stays_empty : assert (!was_empty || is_empty);
      empty_path_is_quiet : assert (!is_empty || known == '0 && !done_valid && !is_coming && !is_leaving);
      empty_path_has_no_key : assert (!is_empty || !dut.key_valid && !dut.found_valid && !dut.route_valid);
      images_are_the_same : assert (!is_kept || &is_in_image && (!dut.found_valid || dut.found_image == image));
      source_is_read_in_image : assert (!is_kept || !dut.lookup.valid[4] || dut.lookup.sources.image1 == image);
      reads_are_in_one_image : assert (!is_kept || &is_read_in_image);

      // `fifo_order` proves that a queue gives back what was put in.
      route_keeps_image : assume (!is_kept || !dut.route_valid || dut.route_image == image);
      image_goes_along :
      assert (!is_kept || (!dut.rewrite.has1 || dut.rewrite.image1 == image) && (!dut.rewrite.has2 || dut.rewrite.image2 == image));
      done_names_image : assert (!is_kept || !is_leaving || done.image == image);

      packets_follow : cover (known > number_t'(2) && dut.unused_head_valid);
      image_changes : cover (is_kept && image != image_before && known == '0);
      key_follows_change : cover (is_kept && image != image_before && dut.comes);
      padding_comes : cover (dut.parse.skips && dut.comes && known != '0);
    end
  end

endmodule
