/* NAA_SPEC with an IPv6 address. */
#include <naaice_ap2.h>

#include "naaice_check.h"

int main(void) {
  unsigned char in[100], out[1];
  naa_param_t input = {in, sizeof in, false}, output = {out, sizeof out, false};
  naa_handle handle;
  naa_status status;
  memset(in, 2, sizeof in);
  CHECK(naa_create(102, &input, 1, &output, 1, &handle) == 0);
  CHECK(naa_invoke(&handle) == 0 && naa_wait(&handle, &status) == 0 && out[0] == 200);
  CHECK(naa_finalize(&handle) == 0);
  puts("ok");
  return 0;
}
