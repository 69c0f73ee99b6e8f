// The entries of the load balancer's tables, and how they are written. The Rust module ejfat::lb::image makes them.
package lb_tables_pkg;
  import lb_pkg::*;

  localparam int RangeBits = 12;

  // What happens to a member's packets of one IP version.
  typedef enum logic [1:0] {
    Absent,
    Forward,
    SoftEvicted,
    Deregistered
  } member_e;

  typedef struct packed {
    member_e kind;
    logic keeps_header;
    logic [15:0] port;
    logic [3:0] port_bits;
    logic [15:0] address_sum;
    logic [47:0] mac;
    logic [127:0] address;
  } member_t;

  // The calendar that a range of ticks leads to. Slots at `length` and above have no member.
  typedef struct packed {
    logic [SlotBits-1:0] first;
    logic [SlotBits:0] length;
    logic [3:0] bits;
    logic [15:0] flips;
  } epoch_t;

  // A range of ticks: the number of its set of tables, and its epoch, if it has one.
  typedef struct packed {
    logic [SetBits-1:0] set;
    logic has_epoch;
    logic [EpochBits-1:0] epoch;
  } range_t;

  typedef struct packed {
    logic valid;
    logic [MemberBits-1:0] member;
  } slot_t;

  // The place of a begin in the search tree, with the root at 1.
  typedef logic [RangeBits-1:0] place_t;

  // The first tick of a range. Begins are sorted by load balancer, then by tick.
  typedef struct packed {
    logic [LbBits-1:0] lb;
    logic [63:0] tick;
  } begin_t;

  // An address with its value: of a destination the load balancer, of a source the last set of tables that allows it.
  typedef struct packed {
    logic valid;
    logic [4:0] value;
    logic [LbBits-1:0] lb;
    logic is_v6;
    logic [127:0] address;
  } address_t;

  localparam int AddressKeyBits = LbBits + 1 + 128;
  localparam int Ways = 4;

  // The tables of an image.
  typedef enum logic [2:0] {
    Destinations,
    Sources,
    Begins,
    Ranges,
    Epochs,
    Slots,
    Members,
    NoTable
  } table_e;

  // A new value for one entry of one table. The upper bits of an index of an address table are the way, the lower ones the row. The index of
  // `Begins` is the place in the search tree, with the root at 1. The lowest bit of an index of `Members` is 1 for IPv6; the others are the
  // member.
  typedef struct packed {
    table_e which;
    logic image;
    logic [SlotBits-1:0] index;
    logic [255:0] data;
  } write_t;

  // The row of an address in each way: four numbers of 8 bits.
  //
  // The hash is linear over GF(2). Each bit of the key that is 1 adds one word to it by XOR. The words are the numbers of Marsaglia's xorshift32
  // that starts from 1.
  function automatic logic [AddressKeyBits-1:0][31:0] hash_words();
    logic [AddressKeyBits-1:0][31:0] words;
    logic [31:0] word;
    word = 32'd1;
    for (int i = 0; i < AddressKeyBits; i++) begin
      word ^= word << 13;
      word ^= word >> 17;
      word ^= word << 5;
      words[i] = word;
    end
    return words;
  endfunction

  localparam logic [AddressKeyBits-1:0][31:0] HashWords = hash_words();

  function automatic logic [Ways-1:0][7:0] hash(logic [AddressKeyBits-1:0] key);
    logic [31:0] result;
    result = '0;
    for (int i = 0; i < AddressKeyBits; i++) result ^= HashWords[i] & {32{key[i]}};
    return result;
  endfunction

endpackage
