// Proves of `region_check` that an access is permitted exactly if the region of its slot is valid, the key, the protection domain and the
// permission are right, and all bytes lie in the region.
//
// The harness follows one slot, which may be any. It keeps what was last written to the slot, and the requests in each stage with the region as
// it was when the request came.
module region_bounds #(
    parameter int Slots = 256,
    localparam int SlotBits = $clog2(Slots)
) (
    input logic clk,
    input logic enable,
    input logic [SlotBits-1:0] any_slot,

    input logic table_write,
    input logic [SlotBits-1:0] table_slot,
    input logic table_valid,
    input logic [31:SlotBits] table_secret,
    input logic [15:0] table_pd,
    input logic table_remote_read,
    input logic table_remote_write,
    input logic [31:0] table_generation,
    input logic [63:0] table_address,
    input logic [63:0] table_length,

    input logic request_valid,
    input logic [31:0] request_rkey,
    input logic [15:0] request_pd,
    input logic request_write,
    input logic [63:0] request_address,
    input logic [31:0] request_length
);

  logic begun = 1'b0;
  always_ff @(posedge clk) begun <= 1'b1;

  logic table_ready, answer_valid, answer_ok;
  logic [SlotBits-1:0] answer_slot;
  logic [31:0] answer_generation;
  logic [63:0] answer_offset;
  region_check #(
      .Slots(Slots)
  ) dut (
      .clk(clk),
      .rst(!begun),
      .enable(enable),
      .table_write(table_write),
      .table_ready(table_ready),
      .table_slot(table_slot),
      .table_valid(table_valid),
      .table_secret(table_secret),
      .table_pd(table_pd),
      .table_remote_read(table_remote_read),
      .table_remote_write(table_remote_write),
      .table_generation(table_generation),
      .table_address(table_address),
      .table_length(table_length),
      .request_valid(request_valid),
      .request_rkey(request_rkey),
      .request_pd(request_pd),
      .request_write(request_write),
      .request_address(request_address),
      .request_length(request_length),
      .answer_valid(answer_valid),
      .answer_ok(answer_ok),
      .answer_slot(answer_slot),
      .answer_generation(answer_generation),
      .answer_offset(answer_offset)
  );

  // ------------------------------------------------------------------ the slot that is followed

  typedef struct packed {
    logic valid;
    logic [31:SlotBits] secret;
    logic [15:0] pd;
    logic remote_read;
    logic remote_write;
    logic [31:0] generation;
    logic [63:0] address;
    logic [63:0] length;
  } region_t;

  logic [SlotBits-1:0] slot;
  region_t region;
  always_ff @(posedge clk) begin
    if (!begun) begin
      slot <= any_slot;
      region <= '0;
    end else if (table_write && table_ready && table_slot == slot) begin
      region <= '{
          valid: table_valid,
          secret: table_secret,
          pd: table_pd,
          remote_read: table_remote_read,
          remote_write: table_remote_write,
          generation: table_generation,
          address: table_address,
          length: table_length
      };
    end
  end

  // ------------------------------------------------------------------ requests in each stage

  typedef struct packed {
    logic valid;
    logic ready;
    logic [31:0] rkey;
    logic [15:0] pd;
    logic write;
    logic [63:0] address;
    logic [31:0] length;
    region_t region;
    // From stage 2 on: the first byte of the access, counted from the begin of the region. Bit 64 is 1 if it is below the region.
    logic [64:0] offset;
    // From stage 4 on: the number of bytes from there to the end of the region. Bit 64 is 1 if the offset is behind the region.
    logic [64:0] left;
    // From stage 6 on: whether all bytes of the access lie in the region. `region_ends` proves that this is computed rightly.
    logic is_within;
  } request_t;

  localparam int Answer = 7;
  request_t at[Answer+1];
  always_ff @(posedge clk) begin
    if (enable) begin
      at[0] <= '{
          valid: request_valid,
          ready: table_ready,
          rkey: request_rkey,
          pd: request_pd,
          write: request_write,
          address: request_address,
          length: request_length,
          region: region,
          offset: '0,
          left: '0,
          is_within: 1'b0
      };
      for (int i = 1; i <= Answer; i++) at[i] <= at[i-1];
      at[2].offset <= {1'b0, at[1].address} - {1'b0, at[1].region.address};
      at[4].left <= {1'b0, at[3].region.length} - {1'b0, at[3].offset[63:0]};
      at[6].is_within <= !at[5].offset[64] && !at[5].left[64] && at[5].left[63:0] >= 64'(at[5].length);
    end
    if (!begun) for (int i = 0; i <= Answer; i++) at[i].valid <= 1'b0;
  end

  // Whether everything is right except the bounds.
  function automatic logic is_allowed(request_t request);
    return request.ready && request.region.valid && request.region.secret == request.rkey[31:SlotBits]
        && request.region.pd == request.pd && (request.write ? request.region.remote_write : request.region.remote_read);
  endfunction

  logic follows[Answer+1];
  for (genvar i = 0; i <= Answer; i++) begin : gen_follows
    assign follows[i] = at[i].rkey[SlotBits-1:0] == slot;
  end

  // The two numbers that the stages compute in two steps, as they will be after the second step.
  logic [32:0] high2, high4;
  logic [64:0] offset2, left4;
  assign high2 = {1'b0, dut.address2} - {1'b0, dut.region2} - 33'(dut.borrow2);
  assign high4 = {1'b0, dut.size4} - {1'b0, dut.offset4[63:32]} - 33'(dut.borrow4);
  assign offset2 = {high2, dut.offset2};
  assign left4 = {high4, dut.left4};

  // Whether the slot was cleared since the reset. `follows[i]`: the request in stage i is for the slot that is followed.
  logic is_cleared;
  assign is_cleared = table_ready || dut.cleared > (SlotBits + 1)'(slot);

  // ------------------------------------------------------------------ what is proved

  always_comb begin
    if (begun) begin
      // What the memory holds.
      region_starts_empty : assert (table_ready || region == '0);
      clearing_ends : assert (dut.cleared <= (SlotBits + 1)'(Slots));
      memory_holds_region : assert (!is_cleared || dut.regions[slot] == region);

      // What the stages hold.
      pending :
      assert (
        {dut.pending0, dut.pending1, dut.pending2, dut.pending3, dut.pending4, dut.pending5, dut.pending6, answer_valid}
        == {at[0].valid, at[1].valid, at[2].valid, at[3].valid, at[4].valid, at[5].valid, at[6].valid, at[7].valid});
      if (at[0].valid) begin
        request0 : assert ({dut.ready0, dut.rkey0, dut.pd0, dut.write0} == {at[0].ready, at[0].rkey, at[0].pd, at[0].write});
        access0 : assert ({dut.address0, dut.length0} == {at[0].address, at[0].length});
        region0 : assert (!follows[0] || !at[0].ready || dut.region0 == at[0].region);
      end
      if (at[1].valid) begin
        request1 : assert ({dut.ready1, dut.rkey1, dut.pd1, dut.write1} == {at[1].ready, at[1].rkey, at[1].pd, at[1].write});
        access1 : assert ({dut.address1, dut.length1} == {at[1].address, at[1].length});
        region1 : assert (!follows[1] || !at[1].ready || dut.region1 == at[1].region);
      end
      if (at[2].valid) begin
        request2 : assert ({dut.slot2, dut.length2} == {at[2].rkey[SlotBits-1:0], at[2].length});
        allowed2 : assert (!follows[2] || (dut.has_secret2 && dut.is_domain2 && dut.permits2) == is_allowed(at[2]));
        computed2 : assert (!follows[2] || !at[2].ready || offset2 == at[2].offset);
        region2 :
        assert (!follows[2] || !at[2].ready || {dut.size2, dut.generation2} == {at[2].region.length, at[2].region.generation});
      end
      if (at[3].valid) begin
        request3 : assert ({dut.slot3, dut.length3} == {at[3].rkey[SlotBits-1:0], at[3].length});
        allowed3 : assert (!follows[3] || dut.ok3 == is_allowed(at[3]));
        computed3 : assert (!follows[3] || !at[3].ready || {dut.borrow3, dut.offset3} == at[3].offset);
        region3 :
        assert (!follows[3] || !at[3].ready || {dut.size3, dut.generation3} == {at[3].region.length, at[3].region.generation});
      end
      if (at[4].valid) begin
        request4 : assert ({dut.slot4, dut.length4} == {at[4].rkey[SlotBits-1:0], at[4].length});
        allowed4 : assert (!follows[4] || dut.ok4 == (is_allowed(at[4]) && !at[4].offset[64]));
        computed4 : assert (!follows[4] || !at[4].ready || left4 == at[4].left);
        offset4_is_kept : assert (!follows[4] || !at[4].ready || dut.offset4 == at[4].offset[63:0]);
        region4 :
        assert (!follows[4] || !at[4].ready || {dut.size4, dut.generation4} == {
          at[4].region.length[63:32], at[4].region.generation
        });
      end
      if (at[5].valid) begin
        request5 : assert ({dut.slot5, dut.length5} == {at[5].rkey[SlotBits-1:0], at[5].length});
        allowed5 : assert (!follows[5] || dut.ok5 == (is_allowed(at[5]) && !at[5].offset[64]));
        computed5 : assert (!follows[5] || !at[5].ready || {dut.borrow5, dut.left5} == at[5].left);
        region5 :
        assert (!follows[5] || !at[5].ready || {dut.offset5, dut.generation5} == {at[5].offset[63:0], at[5].region.generation});
      end
      if (at[6].valid) begin
        slot6 : assert (dut.slot6 == at[6].rkey[SlotBits-1:0]);
        allowed6 : assert (!follows[6] || (dut.ok6 && (dut.is_far6 || dut.is_enough6)) == (is_allowed(at[6]) && at[6].is_within));
        region6 :
        assert (!follows[6] || !at[6].ready || {dut.offset6, dut.generation6} == {at[6].offset[63:0], at[6].region.generation});
      end

      // What the answer says.
      if (answer_valid && follows[Answer]) begin
        answer_is_right : assert (answer_ok == (is_allowed(at[Answer]) && at[Answer].is_within));
        if (answer_ok) begin
          answer_names_slot : assert (answer_slot == slot);
          answer_has_generation : assert (answer_generation == at[Answer].region.generation);
          answer_has_offset : assert (answer_offset == at[Answer].offset[63:0]);
        end
      end

      access_is_permitted :
      cover (answer_valid && answer_ok && follows[Answer] && answer_offset != '0 && at[Answer].length != '0);
      last_byte_is_outside :
      cover (answer_valid && !answer_ok && follows[Answer] && is_allowed(
          at[Answer]
      ) && at[Answer].left + 65'd1 == 65'(at[Answer].length));
    end
  end

endmodule
