// Checks the invariant CRC at the end of RoCEv2 packets, or writes it there. The module takes one beat per cycle, whatever the length of a
// packet is.
//
// Packets begin at their IP header: IPv4 without options or IPv6, then UDP. The CRC covers eight bytes of ones and the packet, in which
// the fields that routers may change count as ones. All of these lie in the first beat.
//
// The last beat of a packet is treated as a full one that ends with zeros. The effect of these zeros on the register is undone afterwards: the
// register is multiplied by inverse powers of the matrix that one zero byte stands for, in one stage for each bit of the number of zeros.
//
//   beat -> mask -> 8 x (64 -> 32) -> 32 -> register -> undo 1, 2, 4, 8, 16, 32, 64 bytes -> compare or write
//
// s_*: AXI4-Stream of 512 bits. Byte 0 is tdata[7:0], and tkeep is contiguous. tuser[0] of the last beat says that the packet is bad. tuser[1]
//   of the first beat says that the last four bytes are a gap, into which the module writes the CRC; the length of such a packet must be a
//   multiple of four bytes, as it is for all packets of RoCEv2. Back-pressure: tready is low while m_tready is low and m_tvalid is high.
// m_*: the same packets, 12 cycles later. tuser of the last beat is high if the packet was bad before, if its CRC is wrong, if it is shorter
//   than its headers, or if it is neither IPv4 without options nor IPv6.
//
// The module does the same as the Rust module roce::icrc. Source: IBTA volume 1, annex A17.5.
module icrc512
  import crc_pkg::*;
(
    input logic clk,
    input logic rst,
    input logic [511:0] s_tdata,
    input logic [63:0] s_tkeep,
    input logic s_tlast,
    input logic [1:0] s_tuser,
    input logic s_tvalid,
    output logic s_tready,
    output logic [511:0] m_tdata,
    output logic [63:0] m_tkeep,
    output logic m_tlast,
    output logic m_tuser,
    output logic m_tvalid,
    input logic m_tready
);

  // The number of stages between the input and the output register.
  localparam int Stages = 11;
  localparam int Groups = 8;

  // What each bit of a full beat adds to the register after that beat.
  function automatic logic [511:0][31:0] data_columns();
    logic [511:0][31:0] columns;
    register_t column;
    column = 32'h1;
    for (int i = 511; i >= 0; i--) begin
      column = advance_bit(column);
      columns[i] = column;
    end
    return columns;
  endfunction

  localparam logic [511:0][31:0] Data = data_columns();
  localparam matrix_t Beat = advance_matrix(64);
  // The register after the eight bytes of ones and one beat of zeros. The bits of the first beat are added to it.
  localparam register_t Begun = advance(advance('1, 8) ^ ones_of(8), 64);

  // What this number of bytes of ones adds to the register.
  function automatic register_t ones_of(int bytes);
    register_t result;
    result = '0;
    for (int i = 0; i < 8 * bytes; i++) result = advance_bit(result ^ 32'h1);
    return result;
  endfunction

  // What each stage knows of the beat that is in it.
  typedef struct packed {
    logic valid;
    logic first;
    logic last;
    logic insert;
    logic bad;
    // The number of zero bytes whose effect has to be undone: those behind the packet, and those of the gap.
    logic [6:0] zeros;
  } beat_t;

  logic enable;
  assign enable = m_tready || !m_tvalid;
  assign s_tready = enable;

  // ------------------------------------------------------------------ the beat as the CRC covers it

  logic first;
  always_ff @(posedge clk) begin
    if (rst) first <= 1'b1;
    else if (enable && s_tvalid) first <= s_tlast;
  end

  logic is_v4, is_v6, insert, inserting;
  assign is_v4 = s_tdata[7:0] == 8'h45;
  assign is_v6 = s_tdata[7:4] == 4'h6;
  assign insert = first ? s_tuser[1] : inserting;

  logic [511:0] ones;
  always_comb begin
    ones = '0;
    if (first && is_v4) begin
      ones[1*8+:8] = '1;  // TOS
      ones[8*8+:8] = '1;  // TTL
      ones[10*8+:16] = '1;  // header checksum
      ones[26*8+:16] = '1;  // UDP checksum
      ones[32*8+:8] = '1;  // byte 4 of the BTH
    end
    if (first && is_v6) begin
      ones[3:0] = '1;  // traffic class
      ones[1*8+:24] = '1;  // traffic class, flow label
      ones[7*8+:8] = '1;  // hop limit
      ones[46*8+:16] = '1;  // UDP checksum
      ones[52*8+:8] = '1;  // byte 4 of the BTH
    end
  end

  // The bytes that the CRC covers: all bytes of the packet but those of the gap.
  logic [63:0] covered;
  always_comb begin
    covered = s_tkeep;
    if (s_tlast && insert) covered = {4'b0, s_tkeep[63:4]} & s_tkeep;
  end

  logic [511:0] kept;
  logic [6:0] bytes;
  always_comb begin
    bytes = '0;
    for (int i = 0; i < 64; i++) begin
      kept[i*8+:8] = {8{covered[i]}};
      bytes += 7'(s_tkeep[i]);
    end
  end

  logic too_short, is_odd;
  assign too_short = first && s_tlast && (is_v4 ? !s_tkeep[43] : !s_tkeep[63]);
  assign is_odd = s_tlast && insert && bytes[1:0] != 2'b0;

  logic bad_packet, bad;
  assign bad = s_tlast && s_tuser[0] || too_short || is_odd || (first ? !is_v4 && !is_v6 : bad_packet);
  always_ff @(posedge clk) begin
    if (enable && s_tvalid) begin
      bad_packet <= bad;
      inserting <= insert;
    end
  end

  beat_t beat[1:Stages];
  logic [511:0] masked;
  always_ff @(posedge clk) begin
    if (enable) begin
      masked <= (s_tdata | ones) & kept;
      beat[1] <= '{
          valid: s_tvalid,
          first: first,
          last: s_tlast,
          insert: insert,
          bad: bad,
          zeros: 7'd64 - bytes + (insert ? 7'd4 : 7'd0)
      };
      for (int i = 2; i <= Stages; i++) beat[i] <= beat[i-1];
    end
    if (rst) for (int i = 1; i <= Stages; i++) beat[i].valid <= 1'b0;
  end

  // ------------------------------------------------------------------ the register

  register_t group[Groups], data, register;
  always_ff @(posedge clk) begin
    if (enable) begin
      for (int i = 0; i < Groups; i++) begin
        register_t sum;
        sum = '0;
        for (int j = 0; j < 64; j++) sum ^= Data[i*64+j] & {32{masked[i*64+j]}};
        group[i] <= sum;
      end
      data <= group[0] ^ group[1] ^ group[2] ^ group[3] ^ group[4] ^ group[5] ^ group[6] ^ group[7];
      if (beat[3].valid) register <= (beat[3].first ? Begun : multiply(Beat, register)) ^ data;
    end
  end

  // ------------------------------------------------------------------ without the zeros behind the packet

  // Element i is the register without the zeros that bits 0 to i - 1 of their number stand for.
  register_t undone[8];
  assign undone[0] = register;
  for (genvar i = 0; i < 7; i++) begin : gen_undo
    localparam matrix_t Undo = retreat_matrix(1 << i);
    always_ff @(posedge clk) begin
      if (enable) undone[i+1] <= beat[4+i].zeros[i] ? multiply(Undo, undone[i]) : undone[i];
    end
  end

  // ------------------------------------------------------------------ the packet, delayed

  localparam int Width = 512 + 64;
  logic [Width-1:0] delay[16];
  logic [3:0] written;
  always_ff @(posedge clk) begin
    if (rst) written <= '0;
    else if (enable) written <= written + 4'd1;
    if (enable) delay[written] <= {s_tdata, s_tkeep};
  end

  logic [511:0] late_data;
  logic [63:0] late_keep;
  assign {late_data, late_keep} = delay[4'(written-4'(Stages))];

  always_ff @(posedge clk) begin
    if (enable) begin
      m_tdata <= late_data;
      m_tkeep <= late_keep;
      m_tlast <= beat[Stages].last;
      m_tuser <= beat[Stages].bad || !beat[Stages].insert && beat[Stages].last && undone[7] != Residue;
      m_tvalid <= beat[Stages].valid;
      if (beat[Stages].last && beat[Stages].insert) begin
        for (int i = 0; i < 16; i++) begin
          logic is_gap;
          is_gap = late_keep[i*4] && (i == 15 || !late_keep[(i*4+4)%64]);
          if (is_gap) m_tdata[i*32+:32] <= ~undone[7];
        end
      end
    end
    if (rst) m_tvalid <= 1'b0;
  end

endmodule
