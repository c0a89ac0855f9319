/* libFuzzer over what comes from another host of a run: a message between hosts, and the frame
 * between the controller and an agent that it may carry. */
#include "control/agent/wire/agent_wire.h"
#include "control/agent/wire/host_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool good)
{
    if (!good) {
        abort();
    }
}

/* What could be read can be written, as the same bytes. */
static void check_frame(const unsigned char *bytes, size_t n)
{
    static fl_agent_frame frame;
    static unsigned char again[FL_AGENT_FRAME_MAX];
    if (fl_agent_wire_get(bytes, n, &frame) == FL_OK) {
        expect(fl_agent_wire_put(&frame, again) == n && memcmp(again, bytes, n) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fl_host_message message;
    static unsigned char again[FL_HOST_MESSAGE_MAX];
    check_frame(data, size);
    if (fl_host_wire_get(data, size, &message) != FL_OK) {
        return 0;
    }
    expect(fl_host_wire_put(&message, again) == size && memcmp(again, data, size) == 0);
    if (message.type == FL_HOST_FRAME) {
        check_frame(message.frame.bytes, message.frame.n);
    }
    return 0;
}
