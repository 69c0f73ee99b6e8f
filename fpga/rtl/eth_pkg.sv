// Ethernet headers.
package eth_pkg;

  localparam int HeaderBytes = 14;
  localparam logic [15:0] TypeV4 = 16'h0800;
  localparam logic [15:0] TypeArp = 16'h0806;
  localparam logic [15:0] TypeV6 = 16'h86dd;

  // The MAC address in six bytes of a stream. The first byte on the wire is the highest one of the address.
  function automatic logic [47:0] mac_at(logic [47:0] bytes);
    logic [47:0] mac;
    for (int i = 0; i < 6; i++) mac[8*(5-i)+:8] = bytes[8*i+:8];
    return mac;
  endfunction

endpackage
