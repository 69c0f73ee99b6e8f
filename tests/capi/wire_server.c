/* A server with NAAICE's own kernels, as its users write them; it serves until it is killed. */
#include "swnaa.h"

int main(void) {
  struct context *server = start_server();
  puts("ready");
  fflush(stdout);
  for (;;) {
    CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0);
  }
}
