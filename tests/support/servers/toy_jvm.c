/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The parts of a HotSpot that give the offsets of fields, with two classes; it waits to be killed.
 */
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

struct symbol {
	uint32_t hash;
	uint16_t length;
	char body[64];
};
#define SYMBOL(text)                                                                               \
	{                                                                                          \
		.length = sizeof(text) - 1, .body = text                                           \
	}

static struct symbol engine_name = SYMBOL("org/voltdb/jni/ExecutionEngine");
static struct symbol string_name = SYMBOL("java/lang/String");
static struct symbol names[] = {SYMBOL("m_currentProcedureName"), SYMBOL("m_sqlTexts"),
				SYMBOL("value"), SYMBOL("coder"), SYMBOL("LOG")};

struct constant_pool {
	uint64_t header;
	struct symbol *entries[5];
} constants = {.entries = {&names[0], &names[1], &names[2], &names[3], &names[4]}};

struct field_info {
	uint16_t access, name, signature, value, low, high;
};
struct fields {
	int32_t length;
	struct field_info data[3];
};
#define AT(offset) (uint16_t)((offset) << 2 | 1), (uint16_t)((offset) >> 14)
static struct fields engine_fields = {
    18, {{8, 4, 0, 0, AT(7)}, {0, 0, 0, 0, AT(104)}, {2, 1, 0, 0, AT(70000)}}};
static struct fields string_fields = {12, {{2, 2, 0, 0, AT(20)}, {2, 3, 0, 0, AT(16)}}};

struct klass {
	struct symbol *name;
	struct klass *next;
	struct constant_pool *constants;
	struct fields *fields;
	uint16_t count;
};
static struct klass string_class;
static struct klass engine_class = {&engine_name, &string_class, &constants, &engine_fields, 3};
#if defined(ENDLESS)
static struct klass string_class = {&string_name, &engine_class, &constants, &string_fields, 2};
#elif defined(TWICE)
static struct klass twin = {&string_name, 0, &constants, &string_fields, 2};
static struct klass string_class = {&string_name, &twin, &constants, &string_fields, 2};
#elif defined(WILD)
static struct klass string_class = {&string_name, (struct klass *)8, &constants, &string_fields, 2};
#else
static struct klass string_class = {&string_name, 0, &constants, &string_fields, 2};
#endif

static struct loader {
	struct loader *next;
	struct klass *classes;
} empty = {0, 0}, head = {&empty, &engine_class}, *loaders = &head;

static uint64_t oop_base = 0x800000000;
static int oop_shift = 3;
static uint8_t yes = 1, concurrent =
#ifdef CONCURRENT
			    1;
#else
			    0;
#endif
static struct flag {
	const char *name;
	void *address;
} flag_list[] = {{"UseCompressedOops", &yes},
		 {"UseCompressedClassPointers", &yes},
		 {"UseZGC", &concurrent}},
  *flags = flag_list;
static uint64_t flag_count = 3;

struct vm_struct {
	const char *type, *field, *type_string;
	int32_t is_static;
	uint64_t offset;
	void *address;
};
struct vm_type {
	const char *name;
	uint64_t size;
};

#define AT_OFFSET(type, field, c, member)                                                          \
	{                                                                                          \
		type, field, "", 0, offsetof(struct c, member), 0                                  \
	}
#define AT_ADDRESS(type, field, variable)                                                          \
	{                                                                                          \
		type, field, "", 1, 0, &variable                                                   \
	}
static struct vm_struct structs[] = {
#ifndef NO_LOADERS
    AT_ADDRESS("ClassLoaderDataGraph", "_head", loaders),
#endif
    AT_OFFSET("ClassLoaderData", "_next", loader, next),
    AT_OFFSET("ClassLoaderData", "_klasses", loader, classes),
    AT_OFFSET("Klass", "_name", klass, name),
    AT_OFFSET("Klass", "_next_link", klass, next),
    AT_OFFSET("InstanceKlass", "_constants", klass, constants),
    AT_OFFSET("InstanceKlass", "_fields", klass, fields),
    AT_OFFSET("InstanceKlass", "_java_fields_count", klass, count),
    AT_OFFSET("Array<u2>", "_data", fields, data),
    AT_OFFSET("Symbol", "_length", symbol, length),
    AT_OFFSET("Symbol", "_body", symbol, body),
    AT_ADDRESS("JVMFlag", "flags", flags),
    AT_ADDRESS("JVMFlag", "numFlags", flag_count),
    AT_OFFSET("JVMFlag", "_name", flag, name),
    AT_OFFSET("JVMFlag", "_addr", flag, address),
    AT_ADDRESS("Universe", "_narrow_oop._base", oop_base),
    AT_ADDRESS("CompressedOops", "_narrow_oop._shift", oop_shift),
    {0},
};
static struct vm_type types[] = {
    {"ConstantPool", offsetof(struct constant_pool, entries)},
    {"JVMFlag", sizeof(struct flag)},
    {0},
};

struct vm_struct *gHotSpotVMStructs = structs;
uint64_t gHotSpotVMStructEntryArrayStride = sizeof(struct vm_struct);
uint64_t gHotSpotVMStructEntryTypeNameOffset = offsetof(struct vm_struct, type);
uint64_t gHotSpotVMStructEntryFieldNameOffset = offsetof(struct vm_struct, field);
uint64_t gHotSpotVMStructEntryIsStaticOffset = offsetof(struct vm_struct, is_static);
uint64_t gHotSpotVMStructEntryOffsetOffset = offsetof(struct vm_struct, offset);
uint64_t gHotSpotVMStructEntryAddressOffset = offsetof(struct vm_struct, address);
struct vm_type *gHotSpotVMTypes = types;
uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(struct vm_type);
uint64_t gHotSpotVMTypeEntryTypeNameOffset = offsetof(struct vm_type, name);
uint64_t gHotSpotVMTypeEntrySizeOffset = offsetof(struct vm_type, size);

int main(void)
{
	return write(1, "\n", 1) == 1 ? pause() : (int)(uintptr_t)types;
}
