// What the modules of RoCEv2 share: opcodes of reliable connections, and what a responder decides.
package roce_pkg;

  // The operation of a request (IBTA volume 1, 9.2.1). `Other` stands for all that are not supported.
  typedef enum logic [1:0] {
    Send,
    Write,
    Read,
    Other
  } operation_e;

  // What an opcode means for a responder.
  typedef struct packed {
    operation_e operation;
    logic starts;
    logic ends;
    logic imm;
  } opcode_t;

  function automatic opcode_t decode(logic [7:0] opcode);
    case (opcode)
      8'h00: return '{Send, 1'b1, 1'b0, 1'b0};
      8'h01: return '{Send, 1'b0, 1'b0, 1'b0};
      8'h02: return '{Send, 1'b0, 1'b1, 1'b0};
      8'h03: return '{Send, 1'b0, 1'b1, 1'b1};
      8'h04: return '{Send, 1'b1, 1'b1, 1'b0};
      8'h05: return '{Send, 1'b1, 1'b1, 1'b1};
      8'h06: return '{Write, 1'b1, 1'b0, 1'b0};
      8'h07: return '{Write, 1'b0, 1'b0, 1'b0};
      8'h08: return '{Write, 1'b0, 1'b1, 1'b0};
      8'h09: return '{Write, 1'b0, 1'b1, 1'b1};
      8'h0a: return '{Write, 1'b1, 1'b1, 1'b0};
      8'h0b: return '{Write, 1'b1, 1'b1, 1'b1};
      8'h0c: return '{Read, 1'b1, 1'b1, 1'b0};
      default: return '{Other, 1'b1, 1'b1, 1'b0};
    endcase
  endfunction

  // What is sent back. `ReadAgain` is the answer to a READ that was executed before.
  typedef enum logic [1:0] {
    Silence,
    Acknowledge,
    ReadOnce,
    ReadAgain
  } reply_e;

  // Where the payload goes.
  typedef enum logic [1:0] {
    Nowhere,
    ToRegion,
    ToReceive
  } place_e;

  // What happens to a posted receive.
  typedef enum logic [1:0] {
    None,
    Received,
    ReceivedWrite,
    Failed
  } completion_e;

  // Syndromes of acknowledgements (IBTA volume 1, 9.7.5.2).
  localparam logic [7:0] Ack = 8'h1f;
  localparam logic [7:0] RnrNak = 8'h20;
  localparam logic [7:0] NakSequence = 8'h60;
  localparam logic [7:0] NakInvalid = 8'h61;
  localparam logic [7:0] NakAccess = 8'h62;

  // The length of the longest message in bytes (IBTA C9-9).
  localparam logic [31:0] LongestMessage = 32'h8000_0000;

endpackage
