#include "device/text/plain_name.h"

#include <string.h>

bool fl_name_is_plain(const char *text, size_t longest)
{
    size_t length = strlen(text);
    return length >= 1 && length <= longest && text[0] != '-' && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
               length;
}
