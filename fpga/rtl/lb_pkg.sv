// What the modules of the load balancer share: packets' keys, routes, causes of drops.
package lb_pkg;

  localparam int LbBits = 3;
  localparam int SetBits = 5;
  localparam int EpochBits = 10;
  localparam int SlotBits = 14;
  localparam int MemberBits = 10;

  // Why a packet is dropped, in the order of the Rust's causes. `Pass`: it is not.
  typedef enum logic [3:0] {
    NotIp,
    BadIp,
    BlockedSrc,
    NoUdplbHdr,
    BadUdplbVersion,
    TtlExpired,
    EpochAssignMiss,
    LbCalendarMiss,
    MbrInfoMiss,
    MbrDropSoftEvicted,
    MbrDropDeregistered,
    Pass
  } cause_e;

  // What a packet says of itself. An IPv4 address is in the low 32 bits.
  typedef struct packed {
    // NotIp, NoUdplbHdr, BadUdplbVersion, or Pass.
    cause_e cause;
    logic is_v6;
    logic [127:0] source;
    logic [127:0] destination;
    // TTL or hop limit of 1 or 0.
    logic is_expired;
    // Of an LB header.
    logic is_v3;
    logic [63:0] tick;
    logic [15:0] slot_select;
    logic [15:0] port_select;
  } key_t;

  // What the rewrite needs to know of a packet's headers. All sums are of one's complement.
  typedef struct packed {
    logic is_v6;
    // Where the UDP header begins, in words of 32 bits.
    logic [3:0] udp;
    logic [127:0] destination;
    // Of what goes, inverted: the source address, the UDP port, the LB header.
    logic [15:0] source;
    logic [15:0] port;
    logic [15:0] header;
    // Of the IP packet.
    logic [15:0] length;
  } head_t;

  // The end-around carry.
  function automatic logic [15:0] fold(logic [19:0] sum);
    logic [16:0] once;
    once = {1'b0, sum[15:0]} + 17'(sum[19:16]);
    return once[15:0] + 16'(once[16]);
  endfunction

  // What becomes of a packet. What no table was asked for means nothing.
  typedef struct packed {
    cause_e cause;
    // The load balancer, if the cause is neither NotIp nor BadIp.
    logic [LbBits-1:0] lb;
    // The source's address is one that some tables allow.
    logic is_known;
    // The tables of the packet's tick.
    logic [SetBits-1:0] set;
    logic [SlotBits-1:0] slot;
    logic [EpochBits-1:0] epoch;
    logic [MemberBits-1:0] member;
    logic keeps_header;
    logic [15:0] port;
    logic [127:0] address;
    // The one's complement sum of the address.
    logic [15:0] address_sum;
    logic [47:0] mac;
  } route_t;

endpackage
