/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which lock: from an address to the lock's class, while the lock is certainly alive.
 */
#ifndef LOCKMETER_LOCK_CLASS_BPF_H
#define LOCKMETER_LOCK_CLASS_BPF_H

#include "core.h"
#include "numbers.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * A lock's class, the key of everything, in 64 bits:
 *
 *   0xff.. / 0xffff..   an address outside the slab: static, per-CPU, vmalloc, boot memory
 *   1 << 60             slab object: index into `caches` << 32 | offset of the lock in the object
 *   2 << 60             inside a struct page: offset in it
 *   3 << 60             mm_struct.mmap_lock, as its own tracepoints say
 */
#define CLASS_SLAB (1ULL << 60)
#define CLASS_PAGE (2ULL << 60)
#define CLASS_MMAP_LOCK (3ULL << 60)

/* Slab caches told apart. */
#define CACHES 1024
#define CACHE_PROBES 12

/* From here up x86-64 keeps the kernel image, modules and fixed mappings: never slab memory. */
#define IMAGE_BEGIN_X86 0xffffffff80000000ULL

/* Set by the loader before the programs are loaded. */
const volatile __u8 has_get_kmem_cache __weak = 0;
/* Address of the struct page of virtual address 0, so to say: page_of(va) = anchor + (va >> 12) * sizeof(struct page).
 * 0 when unknown. */
const volatile __u64 page_anchor __weak = 0;
const volatile __u32 struct_page_size __weak = 64;
const volatile __u64 struct_pages_begin __weak = 0;
const volatile __u64 struct_pages_end __weak = 0;
/* The direct map, where slab objects live. */
const volatile __u64 direct_map_begin __weak = 0;
const volatile __u64 direct_map_end __weak = 0;
const volatile __u64 image_begin __weak = IMAGE_BEGIN_X86;

__u64 caches[CACHES] __weak;

extern struct kmem_cache *bpf_get_kmem_cache(__u64 address) __ksym __weak;

/*
 * A number, or a pointer as one, in kernel memory that may not be there. Since 6.2 by a load that the kernel recovers from; before, by a
 * helper, which takes some twenty times as many instructions. The load goes through a type that has nothing but numbers, because
 * the verifier lets nobody calculate with what is a pointer in its type, or in any part of a union.
 */
#define LOAD_NUMBER(type, address, field)                                                                              \
	(bpf_core_cast((const void *)((__u64)(address) + bpf_core_field_offset(type, field)), struct timespec64)       \
		 ->tv_sec &                                                                                            \
	 (__u64)(sizeof(((type *)0)->field) == 8 ? ~0ULL : 0xffffffffULL))
#define READ_NUMBER(type, address, field)                                                                              \
	(bpf_rdonly_cast ? LOAD_NUMBER(type, address, field) : (__u64)BPF_CORE_READ((type *)(address), field))

#define PAGE_SHIFT 12
#define PAGE_SIZE (1ULL << PAGE_SHIFT)

static __always_inline __u64 page_of(__u64 address)
{
	return page_anchor + (address >> PAGE_SHIFT) * struct_page_size;
}

static __always_inline __u64 cache_of_slab(__u64 page)
{
	return READ_NUMBER(struct slab, page, slab_cache);
}

/* Whether a page's own words say that it belongs to a slab; the test differs by kernel. */
static __always_inline int page_is_slab(__u64 page)
{
	if (bpf_core_enum_value_exists(enum pagetype___slab_byte, PGTY_slab___slab_byte)) {
		__u32 type = READ_NUMBER(struct page___typed, page, page_type);

		return type >> 24 == bpf_core_enum_value(enum pagetype___slab_byte, PGTY_slab___slab_byte);
	}
	if (bpf_core_enum_value_exists(enum pagetype___slab_bit, PG_slab___slab_bit)) {
		__u32 type = READ_NUMBER(struct page___typed, page, page_type);

		return (type & 0xf0000000) == 0xf0000000 &&
		       !(type & bpf_core_enum_value(enum pagetype___slab_bit, PG_slab___slab_bit));
	}
	if (bpf_core_enum_value_exists(enum pageflags___slab_flag, PG_slab___slab_flag)) {
		__u64 flags = READ_NUMBER(struct page, page, flags);

		return flags >> bpf_core_enum_value(enum pageflags___slab_flag, PG_slab___slab_flag) & 1;
	}
	return 0;
}

/* The slab cache of an address by its page, for kernels without bpf_get_kmem_cache() (before 6.13). */
static __always_inline __u64 cache_by_page(__u64 address)
{
	__u64 page, head;

	if (!page_anchor || address < direct_map_begin || address >= direct_map_end)
		return 0;
	page = page_of(address);
	head = READ_NUMBER(struct page, page, compound_head);
	if (head & 1)
		page = head - 1;
	return page_is_slab(page) ? cache_of_slab(page) : 0;
}

static __always_inline __s32 intern_cache(__u64 cache)
{
	__u32 at = mix(cache) >> 32;

	for (int i = 0; i < CACHE_PROBES; i++, at++) {
		__u64 *slot = &caches[at % CACHES];
		__u64 seen = *(volatile __u64 *)slot;

		if (!seen)
			seen = __sync_val_compare_and_swap(slot, 0, cache);
		if (!seen || seen == cache)
			return at % CACHES;
	}
	return -1;
}

static __always_inline __u64 class_in_slab(__u64 address, __u64 cache, __u64 *lost)
{
	__u32 order = (__u32)READ_NUMBER(struct kmem_cache, cache, oo.x) >> 16;
	__u32 min_order = (__u32)READ_NUMBER(struct kmem_cache, cache, min.x) >> 16;
	__u32 size = READ_NUMBER(struct kmem_cache, cache, size);
	__u64 slab = address & ~((PAGE_SIZE << order) - 1);
	__s32 index;

	/* Short of memory, the allocator makes smaller slabs: then the page at the large slab's start is not ours. */
	if (min_order != order && page_anchor && cache_of_slab(page_of(slab)) != cache)
		slab = address & ~((PAGE_SIZE << min_order) - 1);
	if (!size)
		return address;
	index = intern_cache(cache);
	if (index < 0) {
		__sync_fetch_and_add(lost, 1);
		return address;
	}
	return CLASS_SLAB | (__u64)index << 32 | (__u32)(address - slab) % size;
}

/*
 * `scratch`: a word in a map that no other CPU writes meanwhile. `lost` counts slab caches that found no room.
 */
static __always_inline __u64 look_up_class(__u64 address, __u64 *scratch, __u64 *lost)
{
	struct kmem_cache *cache;
	__u64 by_page;

	if (address >= image_begin)
		return address;
	if (address >= struct_pages_begin && address < struct_pages_end)
		return CLASS_PAGE | address % struct_page_size;
	if (has_get_kmem_cache && bpf_get_kmem_cache) {
		cache = bpf_get_kmem_cache(address);
		if (!cache)
			return address;
		/* The verifier lets nobody calculate with a typed pointer; through memory it becomes a number. */
		*(volatile __u64 *)scratch = (__u64)cache;
		return class_in_slab(address, *(volatile __u64 *)scratch, lost);
	}
	by_page = cache_by_page(address);
	return by_page ? class_in_slab(address, by_page, lost) : address;
}

#endif
