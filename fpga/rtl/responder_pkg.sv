// What the stages of responder_check say to each other, as far as it does not depend on the number of queue pairs and regions.
package responder_pkg;

  import roce_pkg::*;

  // Whether a difference of two PSNs is positive. Its bit 23 is the sign.
  function automatic logic is_after(logic [23:0] difference);
    return !difference[23] && difference != '0;
  endfunction

  // What a queue pair is set up with.
  typedef struct packed {
    logic [15:0] pd;
    logic [2:0] mtu;
    logic [7:0] reads;
    logic [31:0] receive;
  } settings_t;

  // The message that is going on.
  typedef enum logic [1:0] {
    Idle,
    Sending,
    Writing
  } message_e;

  // What follows from a packet and the settings of its queue pair.
  typedef struct packed {
    // The length of the payload is right for the packet's position in its message.
    logic fits;
    // The message is longer than any message may be.
    logic too_long;
    // The message fits into one packet.
    logic one_packet;
  } bounds_t;

  // What a region permits at the moment.
  typedef struct packed {
    logic remote_read;
    logic remote_write;
    logic [31:0] generation;
  } alive_t;

  // Why a request is refused, or that it passes.
  typedef enum logic [2:0] {
    Passes,
    NotReady,
    Invalid,
    NoAccess,
    TooLong
  } verdict_e;

  // What is decided on a request, beside the region and the packets of a READ.
  typedef struct packed {
    reply_e reply;
    logic [7:0] syndrome;
    logic [23:0] psn;
    logic [23:0] msn;
    place_e place;
    logic [63:0] offset;
    completion_e completion;
    logic [31:0] length;
    logic failed;
    logic duplicate;
    logic gap;
  } decision_t;

endpackage
