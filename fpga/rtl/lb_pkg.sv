// What the modules of the load balancer share: packets' keys, routes, causes of drops.
package lb_pkg;

  localparam int LbBits = 3;
  localparam int SetBits = 5;
  localparam int EpochBits = 10;
  localparam int SlotBits = 14;
  localparam int MemberBits = 10;

  // Why a packet is dropped, in the order of the Rust enum DropCause. `Pass` means that it is not dropped. `Answered` means that it leaves this
  // path and is not counted.
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
    Pass,
    // An echo request or a neighbour solicitation. Only lb_answers looks at it further.
    Answered
  } cause_e;

  // What is looked up for a packet: fields of its headers. An IPv4 address is in the low 32 bits.
  typedef struct packed {
    // What the headers alone say: NotIp, NoUdplbHdr, BadUdplbVersion, Answered or Pass.
    cause_e cause;
    logic is_v6;
    logic [127:0] source;
    logic [127:0] destination;
    // The TTL or the hop limit is 1 or 0.
    logic is_expired;
    // The next fields are those of the LB header.
    logic is_v3;
    logic [63:0] tick;
    logic [15:0] slot_select;
    logic [15:0] port_select;
  } key_t;

  // What lb_rewrite needs to know of a packet's headers. The sums are one's complement sums.
  typedef struct packed {
    logic is_v6;
    // Where the UDP header begins, in words of 32 bits.
    logic [3:0] udp;
    logic [127:0] destination;
    // The sums of what is taken out of the packet, with each word inverted: the source address, the UDP port, the LB header.
    logic [15:0] source;
    logic [15:0] port;
    logic [15:0] header;
    // The length of the IP packet in bytes.
    logic [15:0] length;
  } head_t;

  // A one's complement sum of 16 bits: the carries are added to it.
  function automatic logic [15:0] fold(logic [19:0] sum);
    logic [16:0] once;
    once = {1'b0, sum[15:0]} + 17'(sum[19:16]);
    return once[15:0] + 16'(once[16]);
  endfunction

  // The one's complement sum of eight words of 16 bits, without its carries added.
  function automatic logic [19:0] sum8(logic [127:0] words);
    logic [19:0] sum;
    sum = '0;
    for (int i = 0; i < 8; i++) sum += 20'(words[i*16+:16]);
    return sum;
  endfunction

  // The checksum after a change of the bytes that it covers (RFC 1624). `change` is the sum of the new words and of the inverted old ones.
  function automatic logic [15:0] follow(logic [15:0] checksum, logic [15:0] change);
    return ~fold(20'(16'(~checksum)) + 20'(change));
  endfunction

  // What happens to a packet. If it is dropped, the fields that were not looked up by then have no meaning.
  typedef struct packed {
    // Fields of the packet's headers that the counters need. The next two have a meaning only if has_header is high.
    logic is_v6;
    logic has_header;
    logic is_v3;
    logic [63:0] tick;
    cause_e cause;
    // The load balancer that the packet belongs to. It has no meaning if the cause is NotIp or BadIp.
    logic [LbBits-1:0] lb;
    // Some tables of the load balancer allow the packet's source address.
    logic is_known;
    // The number of the set of tables that the packet's tick belongs to.
    logic [SetBits-1:0] set;
    logic [SlotBits-1:0] slot;
    logic [EpochBits-1:0] epoch;
    logic [MemberBits-1:0] member;
    logic keeps_header;
    logic [15:0] port;
    logic [127:0] address;
    // The one's complement sum of the member's address.
    logic [15:0] address_sum;
    logic [47:0] mac;
  } route_t;

  // What is counted of a packet.
  typedef struct packed {
    logic is_v6;
    logic has_header;
    logic is_v3;
    logic [63:0] tick;
    cause_e cause;
    logic [LbBits-1:0] lb;
    logic is_known;
    logic [SetBits-1:0] set;
    logic [MemberBits-1:0] member;
    logic keeps_header;
    // The image in which the packet was looked up.
    logic image;
    // The length of the IP packet when it came.
    logic [15:0] length;
  } done_t;

  // Packets and their bytes.
  typedef struct packed {
    logic [47:0] bytes;
    logic [39:0] packets;
  } traffic_t;

endpackage
