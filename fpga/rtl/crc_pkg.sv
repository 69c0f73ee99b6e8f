// The CRC-32 of IEEE 802.3, bit-reflected, as linear maps of its register over GF(2).
//
// The register starts with ones. A packet carries the inverted register; here the register is not inverted. Bit 0 of a byte enters the
// register first.
package crc_pkg;

  typedef logic [31:0] register_t;
  // A matrix of 32 x 32 bits. Element i is the column that bit i is multiplied by.
  typedef logic [31:0][31:0] matrix_t;

  localparam register_t Polynomial = 32'hedb8_8320;
  // The value of the register after a packet whose CRC is right, with the CRC itself.
  localparam register_t Residue = 32'hdebb_20e3;

  // The register after one more bit of value 0 has entered.
  function automatic register_t advance_bit(register_t register);
    return {1'b0, register[31:1]} ^ (register[0] ? Polynomial : '0);
  endfunction

  // The register before advance_bit.
  function automatic register_t retreat_bit(register_t register);
    return register[31] ? {register[30:0] ^ Polynomial[30:0], 1'b1} : {register[30:0], 1'b0};
  endfunction

  // The register after this number of zero bytes has entered.
  function automatic register_t advance(register_t register, int bytes);
    register_t result;
    result = register;
    for (int i = 0; i < 8 * bytes; i++) result = advance_bit(result);
    return result;
  endfunction

  // The matrix that does the same as `advance` when a register is multiplied by it.
  function automatic matrix_t advance_matrix(int bytes);
    matrix_t result;
    for (int i = 0; i < 32; i++) result[i] = advance(32'h1 << i, bytes);
    return result;
  endfunction

  // The inverse of advance_matrix.
  function automatic matrix_t retreat_matrix(int bytes);
    matrix_t result;
    for (int i = 0; i < 32; i++) begin
      result[i] = 32'h1 << i;
      for (int j = 0; j < 8 * bytes; j++) result[i] = retreat_bit(result[i]);
    end
    return result;
  endfunction

  function automatic register_t multiply(matrix_t matrix, register_t register);
    register_t result;
    result = '0;
    for (int i = 0; i < 32; i++) result ^= matrix[i] & {32{register[i]}};
    return result;
  endfunction

endpackage
