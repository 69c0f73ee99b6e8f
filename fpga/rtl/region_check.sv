// Decides whether a peer may access a memory region. It checks the key, the protection domain, the permission and the bounds. The low bits of an
// RKey are the region's slot; the other bits are the region's secret.
//
// table_*: the new region of a slot. It is written in a cycle in which table_write and table_ready are high. A region that is not valid permits
//   nothing. After a reset no region is valid, and table_ready stays low until all slots are cleared.
// request_*: one request per cycle. answer_*: the answer to it, 8 cycles later. Only cycles in which `enable` is high count: while it is low, the
//   pipeline stands still. There is no other back-pressure.
//
// The module does the same as the Rust type MrTable of roce, with RKeys that hold the slot. A request of no bytes needs no check: its key is not
// looked at.
module region_check #(
    parameter int Slots = 256,
    localparam int SlotBits = $clog2(Slots)
) (
    input logic clk,
    input logic rst,
    input logic enable,

    input logic table_write,
    output logic table_ready,
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
    input logic [31:0] request_length,

    output logic answer_valid,
    // The access is permitted. If it is not, the next outputs have no meaning.
    output logic answer_ok,
    output logic [SlotBits-1:0] answer_slot,
    output logic [31:0] answer_generation,
    // The first byte of the access, counted from the begin of the region.
    output logic [63:0] answer_offset
);

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

  // The number of slots that were cleared since the reset. Its highest bit is 1 when all are.
  logic [SlotBits:0] cleared;
  assign table_ready = cleared[SlotBits];
  always_ff @(posedge clk) begin
    if (rst) cleared <= '0;
    else if (!table_ready) cleared <= cleared + 1'b1;
  end

  region_t regions[Slots];
  region_t written;
  always_comb begin
    written = '0;
    if (table_ready) begin
      written = '{
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
  always_ff @(posedge clk) begin
    if (table_write || !table_ready) regions[table_ready?table_slot : cleared[SlotBits-1:0]] <= written;
  end

  // Stage 0: the output of the memory.
  region_t region0;
  logic pending0, ready0, write0;
  logic [31:0] rkey0, length0;
  logic [15:0] pd0;
  logic [63:0] address0;

  // Stage 1: the region.
  region_t region1;
  logic pending1, ready1, write1;
  logic [31:0] rkey1, length1;
  logic [15:0] pd1;
  logic [63:0] address1;

  // Stage 2: key, protection domain and permission are compared; the low half of the offset is computed.
  logic pending2, has_secret2, is_domain2, permits2, borrow2;
  logic [SlotBits-1:0] slot2;
  logic [31:0] generation2, length2, offset2, address2, region2;
  logic [63:0] size2;

  // Stage 3: the offset. borrow3 is 1 if the address is below the region.
  logic pending3, ok3, borrow3;
  logic [SlotBits-1:0] slot3;
  logic [31:0] generation3, length3;
  logic [63:0] offset3, size3;

  // Stage 4: the low half of the number of bytes from the offset to the end of the region.
  logic pending4, ok4, borrow4;
  logic [SlotBits-1:0] slot4;
  logic [31:0] generation4, length4, left4, size4;
  logic [63:0] offset4;

  // Stage 5: that number. borrow5 is 1 if the offset is behind the region.
  logic pending5, ok5, borrow5;
  logic [SlotBits-1:0] slot5;
  logic [31:0] generation5, length5;
  logic [63:0] offset5, left5;

  // Stage 6: whether that many bytes are enough.
  logic pending6, ok6, is_far6, is_enough6;
  logic [SlotBits-1:0] slot6;
  logic [31:0] generation6;
  logic [63:0] offset6;

  always_ff @(posedge clk) begin
    if (enable) begin
      region0 <= regions[request_rkey[SlotBits-1:0]];
      {pending0, ready0, rkey0, pd0, write0, address0, length0} <= {
        request_valid, table_ready, request_rkey, request_pd, request_write, request_address, request_length
      };

      region1 <= region0;
      {pending1, ready1, rkey1, pd1, write1, address1, length1} <= {pending0, ready0, rkey0, pd0, write0, address0, length0};

      has_secret2 <= region1.secret == rkey1[31:SlotBits];
      is_domain2 <= region1.pd == pd1;
      permits2 <= ready1 && region1.valid && (write1 ? region1.remote_write : region1.remote_read);
      {borrow2, offset2} <= {1'b0, address1[31:0]} - {1'b0, region1.address[31:0]};
      {address2, region2} <= {address1[63:32], region1.address[63:32]};
      {pending2, slot2, generation2, length2, size2} <= {
        pending1, rkey1[SlotBits-1:0], region1.generation, length1, region1.length
      };

      {borrow3, offset3[63:32]} <= {1'b0, address2} - {1'b0, region2} - 33'(borrow2);
      offset3[31:0] <= offset2;
      {pending3, ok3, slot3, generation3, length3, size3} <= {
        pending2, has_secret2 && is_domain2 && permits2, slot2, generation2, length2, size2
      };

      {borrow4, left4} <= {1'b0, size3[31:0]} - {1'b0, offset3[31:0]};
      size4 <= size3[63:32];
      {pending4, ok4, slot4, generation4, length4, offset4} <= {pending3, ok3 && !borrow3, slot3, generation3, length3, offset3};

      {borrow5, left5[63:32]} <= {1'b0, size4} - {1'b0, offset4[63:32]} - 33'(borrow4);
      left5[31:0] <= left4;
      {pending5, ok5, slot5, generation5, length5, offset5} <= {pending4, ok4, slot4, generation4, length4, offset4};

      {pending6, ok6, slot6, generation6, offset6} <= {pending5, ok5 && !borrow5, slot5, generation5, offset5};
      is_far6 <= left5[63:32] != '0;
      is_enough6 <= left5[31:0] >= length5;

      answer_ok <= ok6 && (is_far6 || is_enough6);
      {answer_valid, answer_slot, answer_generation, answer_offset} <= {pending6, slot6, generation6, offset6};
    end
    if (rst) {pending0, pending1, pending2, pending3, pending4, pending5, pending6, answer_valid} <= '0;
  end

endmodule
