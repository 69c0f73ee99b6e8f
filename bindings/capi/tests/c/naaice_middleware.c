/* The middleware, with NAA_SPEC of: something else, 1 with 4 inputs, 102 with 1 input twice. */
#include <naaice_ap2.h>

#include "naaice_check.h"

#define LEN 1024

static unsigned char data[4][LEN], result[LEN];

/* As NAAICE's example: inputs 0 to 3, outputs 0, 1 and 3 in place. */
static void in_place(void) {
  naa_param_t inputs[4] = {{data[0], LEN, false}, {data[1], LEN, false}, {data[2], LEN, true}, {data[3], LEN, false}};
  naa_param_t outputs[3] = {{data[0], LEN, false}, {data[1], LEN, false}, {data[3], LEN, false}};
  naa_handle handle;
  naa_status status;
  for (int i = 0; i < 4; i++) {
    memset(data[i], i, LEN);
  }
  CHECK(naa_create(1, inputs, 4, outputs, 3, &handle) == 0);
  CHECK(handle.function_code == 1 && handle.comm_ctx->no_local_mrs == 4 && handle.comm_ctx->no_output_mrs == 3);
  for (int call = 0; call < 100; call++) {
    CHECK(naa_invoke(&handle) == 0 && naa_wait(&handle, &status) == 0);
    CHECK(status.state == NAAICE_FINISHED && status.naa_error == NAA_SUCCESS && status.bytes_received == LEN);
  }
  CHECK(data[0][0] == 100 && data[1][LEN - 1] == 101 && data[2][5] == 2 && data[3][5] == 103);
  CHECK(naa_wait(&handle, &status) == 0);
  CHECK(naa_finalize(&handle) == 0 && handle.comm_ctx == NULL);
  REFUSED(naa_finalize(&handle), "NULL");
}

static void entries_come_back(void) {
  naa_param_t input = {data[0], 7, false}, output = {data[0], 20, false};
  naa_param_t apart = {result, LEN, false};
  naa_handle first, second, third;
  bool flag = false;
  naa_status status;
  memset(data[0], 2, LEN);
  CHECK(naa_create(102, &input, 1, &output, 1, &first) == 0);
  CHECK(naa_create(102, &input, 1, &apart, 1, &second) == 0);
  REFUSED(naa_create(102, &input, 1, &apart, 1, &third), "are in use");
  CHECK(third.comm_ctx == NULL);
  /* The output is longer than the input at its address: 7 bytes are sent, of 20. */
  CHECK(naa_invoke(&first) == 0 && naa_invoke(&second) == 0);
  while (!flag) {
    CHECK(naa_test(&second, &flag, &status) == 0);
  }
  CHECK(status.state == NAAICE_FINISHED && result[0] == 14 && result[LEN - 1] == 14);
  CHECK(naa_wait(&first, NULL) == 0 && data[0][0] == 14 && data[0][19] == 14 && data[0][20] == 2);
  for (int i = 0; i < 3; i++) {
    CHECK(naa_finalize(&first) == 0);
    CHECK(naa_create(102, &input, 1, &apart, 1, &first) == 0);
  }
  /* Also in the middle of a call. */
  CHECK(naa_invoke(&first) == 0 && naa_finalize(&first) == 0 && naa_finalize(&second) == 0);
  CHECK(naa_create(102, &input, 1, &apart, 1, &first) == 0 && naa_finalize(&first) == 0);
}

int main(void) {
  naa_param_t none = {data[0], LEN, false};
  naa_handle handle;
  in_place();
  entries_come_back();
  /* A refused connection gives the entry back too. */
  for (int i = 0; i < 2; i++) {
    REFUSED(naa_create(9, &none, 1, &none, 1, &handle), "refused the connection");
  }
  ulog_output_level_set_all(LOG_LEVEL);
  ulog_info("-- %s --\n", "Done");
  ulog_debug("not written %d", 1);
  puts("ok");
  return 0;
}
