#include <frostline/tensor.h>

size_t fl_dtype_size(fl_dtype dtype)
{
    switch (dtype) {
    case FL_F32:
        return sizeof(float);
    case FL_I32:
        return sizeof(int32_t);
    case FL_BF16:
        return sizeof(uint16_t);
    }
    return 0;
}

const char *fl_dtype_name(fl_dtype dtype)
{
    switch (dtype) {
    case FL_F32:
        return "fp32";
    case FL_I32:
        return "int32";
    case FL_BF16:
        return "bf16";
    }
    return "an unknown type";
}
