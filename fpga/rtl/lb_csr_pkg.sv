// The registers of lb_sets, as a driver sees them over AXI-Lite. The Rust module naa_fpga::driver is a driver.
//
// All registers have 32 bits. Values of more bits are in consecutive registers, the lowest bits first.
package lb_csr_pkg;
  import lb_pkg::*;

  localparam int Lbs = 1 << LbBits;

  // Addresses in bytes.
  typedef enum logic [11:0] {
    // Read only: the version of these registers.
    Version = 12'h000,
    // Read only: bit 0, the image in use; bit 1, a swap or a reading of counters goes on; bit 2, the last swap was refused; bits 15 to 8, for each
    // load balancer whether its newest tick was the reason.
    Status = 12'h004,
    // A write begins a swap of the two images. Bits 7 to 0: the load balancers whose newest tick must be below their guards.
    Swap = 12'h008,
    // A write of a table entry: first its 8 words of data, then bits 13 to 0 the index, bit 14 the image, bits 17 to 15 the table.
    Entry = 12'h00c,
    // A write begins a reading of counters. Bits 11 to 0: the index, bits 18 to 16 the kind of counter. The counter is 0 afterwards.
    Take = 12'h010,
    // The own MAC address, and that of the next hop of members without one.
    OwnMac = 12'h018,
    HopMac = 12'h020,
    // The 8 words of data of the next table entry.
    Data = 12'h040,
    // Read only: the 6 words of the counter that was read.
    Taken = 12'h060,
    // Two tables with 64 bits for each load balancer: the guards, and the horizons.
    Guards = 12'h100,
    Horizons = 12'h140
  } register_e;

  localparam logic [31:0] RegisterVersion = 32'd1;

  // The kinds of counters.
  typedef enum logic [2:0] {
    // Packets and bytes of IP packets, by is_v6, load balancer, class_e and outcome. The load balancer and the class are 0 for packets that belong to
    // none. The outcome is a cause, with KeptHeader for packets that were forwarded with their LB header.
    OfPackets,
    // Packets and bytes sent, by image, member and is_v6.
    OfMembers,
    // Packets by image, load balancer, set, and whether the packet was dropped.
    OfSets,
    // By load balancer: the newest tick at or below the horizon that was forwarded; bit 64, whether there was one.
    NewestTick,
    // By load balancer: 40 bits for the packets that were forwarded though their ticks are above the horizon, then their lowest tick, then the
    // highest.
    BeyondHorizon
  } kind_e;

  localparam logic [3:0] KeptHeader = 4'd12;

  // The version of the LB header, for packets that the source filter lets pass.
  typedef enum logic [1:0] {
    NoHeader,
    HeaderV2,
    HeaderV3
  } class_e;

endpackage
