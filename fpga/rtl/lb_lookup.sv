// Decides what happens to a packet: which load balancer it belongs to, whether its source is allowed, and which member its tick and its slot
// lead to.
//
//   destination (3) -> source (3)
//                   -> begins (25) -> range (2) -> epoch (2) -> slot (3) -> member (2) -> route (1)
//
// The module takes one key per cycle, and the route comes 38 cycles later. There is no back-pressure. A key is looked up in the image that the
// port `image` names in the cycle in which the key comes.
//
// The module does the same as the Rust type ejfat::lb::DataPlane, whose sets of tables are compiled into one image. If there are several causes
// to drop a packet, the first one in the order of cause_e counts.
module lb_lookup
  import lb_pkg::*;
  import lb_tables_pkg::*;
(
    input logic clk,
    input logic rst,
    input write_t write,
    input logic image,
    input logic key_valid,
    input key_t key,
    output logic route_valid,
    output logic route_image,
    output route_t route
);

  // The number of cycles after the key in which each answer is there.
  localparam int Destination = 3;
  localparam int Source = Destination + 3;
  localparam int Begin = Destination + 25;
  localparam int Range = Begin + 2;
  localparam int Epoch = Range + 2;
  localparam int Slot = Epoch + 3;
  localparam int Member = Slot + 2;
  localparam int Latency = Member + 1;

  key_t keys[1:Latency];
  logic valid[1:Latency], images[1:Latency];
  always_ff @(posedge clk) begin
    {keys[1], valid[1], images[1]} <= {key, key_valid, image};
    for (int i = 2; i <= Latency; i++) {keys[i], valid[i], images[i]} <= {keys[i-1], valid[i-1], images[i-1]};
    if (rst) for (int i = 1; i <= Latency; i++) valid[i] <= 1'b0;
  end

  // ------------------------------------------------------------------ addresses

  logic is_ours;
  logic [LbBits-1:0] lb_of;
  logic [4:LbBits] unused_bits;
  lb_addresses #(
      .RowBits(5)
  ) destinations (
      .clk(clk),
      .write(write.which == Destinations),
      .write_image(write.image),
      .write_way(write.index[9:8]),
      .write_row(write.index[4:0]),
      .write_entry(address_t'(write.data[$bits(address_t)-1:0])),
      .image(image),
      .key({3'd0, key.is_v6, key.destination}),
      .hit(is_ours),
      .value({unused_bits, lb_of})
  );

  logic is_known;
  logic [4:0] last_set;
  lb_addresses #(
      .RowBits(8)
  ) sources (
      .clk(clk),
      .write(write.which == Sources),
      .write_image(write.image),
      .write_way(write.index[9:8]),
      .write_row(write.index[7:0]),
      .write_entry(address_t'(write.data[$bits(address_t)-1:0])),
      .image(images[Destination]),
      .key({lb_of, keys[Destination].is_v6, keys[Destination].source}),
      .hit(is_known),
      .value(last_set)
  );

  logic is_ours_at[Destination:Member], is_known_at[Source:Member];
  logic [LbBits-1:0] lb_at[Destination:Member];
  logic [SetBits-1:0] last_set_at[Source:Member];
  assign is_ours_at[Destination] = is_ours;
  assign lb_at[Destination] = lb_of;
  assign is_known_at[Source] = is_known;
  assign last_set_at[Source] = last_set;
  for (genvar i = Destination + 1; i <= Member; i++) begin : gen_ours
    always_ff @(posedge clk) {is_ours_at[i], lb_at[i]} <= {is_ours_at[i-1], lb_at[i-1]};
  end
  for (genvar i = Source + 1; i <= Member; i++) begin : gen_known
    always_ff @(posedge clk) {is_known_at[i], last_set_at[i]} <= {is_known_at[i-1], last_set_at[i-1]};
  end

  // ------------------------------------------------------------------ ticks to calendars

  logic [RangeBits-1:0] count;
  lb_begins search (
      .clk(clk),
      .write(write.which == Begins),
      .write_image(write.image),
      .write_place(write.index[RangeBits-1:0]),
      .write_begin(begin_t'(write.data[$bits(begin_t)-1:0])),
      .image(images[Destination]),
      .key({lb_of, keys[Destination].tick}),
      .count(count)
  );

  range_t ranges[2<<RangeBits];
  range_t range_read, range_at[Range:Member];
  always_ff @(posedge clk) begin
    if (write.which == Ranges) begin
      ranges[{write.image, write.index[RangeBits-1:0]}] <= range_t'(write.data[$bits(range_t)-1:0]);
    end
    range_read <= ranges[{images[Begin], count}];
    range_at[Range] <= range_read;
    for (int i = Range + 1; i <= Member; i++) range_at[i] <= range_at[i-1];
  end

  epoch_t epochs[2<<EpochBits];
  epoch_t epoch_read, epoch_at;
  always_ff @(posedge clk) begin
    if (write.which == Epochs) begin
      epochs[{write.image, write.index[EpochBits-1:0]}] <= epoch_t'(write.data[$bits(epoch_t)-1:0]);
    end
    epoch_read <= epochs[{images[Range], range_at[Range].epoch}];
    epoch_at <= epoch_read;
  end

  // ------------------------------------------------------------------ slots to members

  // The number of the slot, and whether the calendar is that long.
  logic [SlotBits-1:0] slot_of, slot1, slot_at[Epoch+1:Member];
  logic has_slot_at[Epoch+1:Slot];
  assign slot_of = SlotBits'(keys[Epoch].slot_select ^ epoch_at.flips) & SlotBits'((15'd1 << epoch_at.bits) - 15'd1);
  slot_t slots[2<<SlotBits];
  slot_t slot_read, slot_found;
  always_ff @(posedge clk) begin
    if (write.which == Slots) begin
      slots[{write.image, write.index}] <= slot_t'(write.data[$bits(slot_t)-1:0]);
    end
    slot1 <= slot_of + epoch_at.first;
    slot_at[Epoch+1] <= slot_of;
    has_slot_at[Epoch+1] <= {1'b0, slot_of} < epoch_at.length;
    slot_read <= slots[{images[Epoch+1], slot1}];
    slot_found <= slot_read;
    for (int i = Epoch + 2; i <= Member; i++) slot_at[i] <= slot_at[i-1];
    for (int i = Epoch + 2; i <= Slot; i++) has_slot_at[i] <= has_slot_at[i-1];
  end

  member_t members[4<<MemberBits];
  member_t member_read, member_at;
  logic has_member_at[Slot:Member];
  logic [MemberBits-1:0] number_at[Slot:Member];
  assign has_member_at[Slot] = has_slot_at[Slot] && slot_found.valid;
  assign number_at[Slot] = slot_found.member;
  for (genvar i = Slot + 1; i <= Member; i++) begin : gen_member
    always_ff @(posedge clk) {has_member_at[i], number_at[i]} <= {has_member_at[i-1], number_at[i-1]};
  end
  always_ff @(posedge clk) begin
    if (write.which == Members) begin
      members[{write.image, write.index[MemberBits:0]}] <= member_t'(write.data[$bits(member_t)-1:0]);
    end
    member_read <= members[{images[Slot], slot_found.member, keys[Slot].is_v6}];
    member_at <= member_read;
  end

  // ------------------------------------------------------------------ the route

  range_t range_of;
  cause_e cause;
  assign range_of = range_at[Member];
  always_comb begin
    if (keys[Member].cause == NotIp) cause = NotIp;
    else if (!is_ours_at[Member]) cause = BadIp;
    else if (keys[Member].cause == Answered) cause = Answered;
    // A packet without a readable tick may come from any source that some tables allow.
    else if (!is_known_at[Member] || keys[Member].cause == Pass && range_of.set > last_set_at[Member]) cause = BlockedSrc;
    else if (keys[Member].cause != Pass) cause = keys[Member].cause;
    else if (keys[Member].is_expired) cause = TtlExpired;
    else if (!range_of.has_epoch) cause = EpochAssignMiss;
    else if (!has_member_at[Member]) cause = LbCalendarMiss;
    else begin
      unique case (member_at.kind)
        Absent: cause = MbrInfoMiss;
        Forward: cause = Pass;
        SoftEvicted: cause = MbrDropSoftEvicted;
        Deregistered: cause = MbrDropDeregistered;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    route <= '{
        is_v6: keys[Member].is_v6,
        has_header: keys[Member].cause == Pass,
        is_v3: keys[Member].is_v3,
        tick: keys[Member].tick,
        cause: cause,
        lb: lb_at[Member],
        is_known: is_known_at[Member],
        set: range_of.set,
        slot: slot_at[Member],
        epoch: range_of.epoch,
        member: number_at[Member],
        keeps_header: member_at.keeps_header,
        port: member_at.port + (keys[Member].port_select & ((16'd1 << member_at.port_bits) - 16'd1)),
        address: member_at.address,
        address_sum: member_at.address_sum,
        mac: member_at.mac
    };
    route_valid <= valid[Member] && !rst;
    route_image <= images[Member];
  end

endmodule
