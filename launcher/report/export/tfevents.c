#include "launcher/report/export/tfevents.h"

#include <string.h>

/* Fields of the messages, and how protobuf writes a number: as a varint, in 8 bytes, in 4 bytes, or
 * as bytes with their length before them. */
enum { EVENT_WALL = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };
enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

enum {
    VARINT_MAX = 10,
    VALUE_MAX = FL_TF_TAG_MAX + 3 * VARINT_MAX,
    EVENT_MAX = FL_TF_SCALARS_MAX * VALUE_MAX + 64,
};

static const uint32_t POLYNOMIAL = UINT32_C(0x82F63B78); /* CRC-32C, reflected */
static const uint32_t MASK_DELTA = UINT32_C(0xA282EAD8);
static const char VERSION[] = "brain.Event:2";

typedef struct event_buffer {
    size_t n;
    unsigned char at[EVENT_MAX];
} event_buffer;

uint32_t fl_crc32c(const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
    }
    return ~crc;
}

/* ---- protobuf ---- */

static void put_bytes(event_buffer *b, const void *bytes, size_t n)
{
    memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

static void put_varint(event_buffer *b, uint64_t value)
{
    for (; value > 0x7F; value >>= 7) {
        b->at[b->n++] = (unsigned char)(value | 0x80);
    }
    b->at[b->n++] = (unsigned char)value;
}

static void put_key(event_buffer *b, int field, int wire)
{
    put_varint(b, (uint64_t)(field << 3 | wire));
}

/* The low `size` bytes of a number, the lowest first. */
static void put_fixed(event_buffer *b, uint64_t bits, int size)
{
    for (int i = 0; i < size; i++) {
        b->at[b->n++] = (unsigned char)(bits >> 8 * i);
    }
}

static void put_double(event_buffer *b, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, EIGHT_BYTES);
    put_fixed(b, bits, 8);
}

static void put_float(event_buffer *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FOUR_BYTES);
    put_fixed(b, bits, 4);
}

static void put_text(event_buffer *b, int field, const char *text, size_t n)
{
    put_key(b, field, LENGTH);
    put_varint(b, n);
    put_bytes(b, text, n);
}

static void put_message(event_buffer *b, int field, const event_buffer *message)
{
    put_key(b, field, LENGTH);
    put_varint(b, message->n);
    put_bytes(b, message->at, message->n);
}

/* ---- records ---- */

/* So that a checksum of data that holds checksums stays good. */
static uint32_t masked_crc(const void *bytes, size_t n)
{
    uint32_t crc = fl_crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

/* length (8 bytes), its checksum (4), the data, its checksum (4) */
static fl_status write_record(FILE *file, const event_buffer *data)
{
    event_buffer head = {0}, tail = {0};
    put_fixed(&head, data->n, 8);
    put_fixed(&head, masked_crc(head.at, 8), 4);
    put_fixed(&tail, masked_crc(data->at, data->n), 4);
    if (fwrite(head.at, 1, head.n, file) != head.n ||
        fwrite(data->at, 1, data->n, file) != data->n ||
        fwrite(tail.at, 1, tail.n, file) != tail.n) {
        return fl_fail(FL_EIO, "the events could not be written");
    }
    return FL_OK;
}

fl_status fl_tfevents_begin(FILE *file, double wall_s)
{
    event_buffer event = {0};
    put_double(&event, EVENT_WALL, wall_s);
    put_text(&event, EVENT_VERSION, VERSION, strlen(VERSION));
    return write_record(file, &event);
}

static void put_scalar(event_buffer *summary, const fl_tf_scalar *scalar)
{
    event_buffer value = {0};
    put_text(&value, VALUE_TAG, scalar->tag, strnlen(scalar->tag, FL_TF_TAG_MAX));
    put_float(&value, VALUE_SIMPLE, scalar->value);
    put_message(summary, SUMMARY_VALUE, &value);
}

fl_status fl_tfevents_put(FILE *file, double wall_s, int64_t step, const fl_tf_scalar *scalars,
                          int n)
{
    event_buffer event = {0}, summary = {0};
    if (n == 0) {
        return FL_OK;
    }
    for (int i = 0; i < n; i++) {
        put_scalar(&summary, &scalars[i]);
    }
    put_double(&event, EVENT_WALL, wall_s);
    if (step != 0) { /* protobuf leaves out what is zero */
        put_key(&event, EVENT_STEP, VARINT);
        put_varint(&event, (uint64_t)step);
    }
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(file, &event);
}
