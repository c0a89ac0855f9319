/* Who listens at an endpoint, before a key is blamed. */
#ifndef FL_CONTROL_LINK_KEYS_GREETING_H
#define FL_CONTROL_LINK_KEYS_GREETING_H

#include <stdbool.h>

/* Whether the program that listens at "tcp://HOST:PORT" greets in ZMTP 3 and asks for CURVE, within
 * timeout_ms. A connection that fails before the greeting says nothing about a key: there is a
 * proxy, a service without a process behind it, or a head that ends. Blocks; any thread.
 * The greeting: ZMTP 3.1 (rfc.zeromq.org/spec/37), 64 bytes. */
bool fl_greets_with_curve(const char *endpoint, int timeout_ms);

#endif
