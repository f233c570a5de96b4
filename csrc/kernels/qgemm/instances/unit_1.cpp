#define PYG_INSTANCE_1(Type) PYG_ROW_GROUP_INSTANCE(Type)
#include "kernels/qgemm/instances/unit.inc"
