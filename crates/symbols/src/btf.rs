//! The BPF Type Format, read in place (format: the kernel's `Documentation/bpf/btf.rst`).
//!
//! Our own reader because memory decides: vmlinux has ~6 MB of types, and this keeps those bytes, one offset a type and
//! one hash slot a name, nothing else. A type is a view into the bytes. Bad input gives `None` or an error, never a
//! panic.

use std::sync::Arc;

use crate::error::{SymbolsError, SymbolsErrorKind};

/// Deeper nesting of modifiers, members or arrays than this is damage, not a type.
pub(crate) const DEEPEST_NESTING: usize = 32;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;

/// The kinds of types that matter here, by their number in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Typedef,
    /// const, volatile, restrict, type tag.
    Modifier,
    Function,
    Prototype,
    Variable,
    Section,
    Enum64,
    Other,
}

impl TypeKind {
    const fn of(number: u32) -> Self {
        match number {
            2 => Self::Pointer,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            8 => Self::Typedef,
            9..=11 | 18 => Self::Modifier,
            12 => Self::Function,
            13 => Self::Prototype,
            14 => Self::Variable,
            15 => Self::Section,
            19 => Self::Enum64,
            _ => Self::Other,
        }
    }

    const fn is_looked_up_by_name(self) -> bool {
        matches!(self, Self::Struct | Self::Union | Self::Typedef | Self::Function | Self::Section | Self::Enum)
    }
}

/// A member of a struct or union.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub name: &'a str,
    pub type_id: u32,
    /// In bytes from the start of its struct.
    pub offset: u32,
    pub is_bitfield: bool,
}

/// A variable in a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub variable_id: u32,
    pub offset: u32,
    pub size: u32,
}

/// One type: a view into the bytes of the [`Btf`] that defines it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'a> {
    home: &'a Btf,
    at: usize,
    pub kind: TypeKind,
    count: usize,
    has_flag: bool,
    /// Size in bytes, or the type referred to.
    size_or_type: u32,
}

impl<'a> Type<'a> {
    pub fn name(&self) -> &'a str {
        self.home.string(self.home.word(self.at).unwrap_or(0))
    }

    /// The type that a pointer, typedef, modifier, function or variable refers to.
    pub const fn target(&self) -> u32 {
        self.size_or_type
    }

    fn entries(&self, words_each: usize) -> impl Iterator<Item = [u32; 3]> + use<'a> {
        let (home, start) = (self.home, self.at + TYPE_BYTES);
        (0..self.count).map_while(move |index| {
            let at = start + index * words_each * 4;
            let third = if words_each == 3 { home.word(at + 8)? } else { 0 };
            Some([home.word(at)?, home.word(at + 4)?, third])
        })
    }

    pub fn members(&self) -> impl Iterator<Item = Member<'a>> + use<'a> {
        let (home, has_bitfields) = (self.home, self.has_flag);
        let is_composite = matches!(self.kind, TypeKind::Struct | TypeKind::Union);
        self.entries(3).take_while(move |_| is_composite).map(move |[name, type_id, place]| {
            let (bits, width) = if has_bitfields { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            Member { name: home.string(name), type_id, offset: bits / 8, is_bitfield: width != 0 || bits % 8 != 0 }
        })
    }

    /// The types of a prototype's parameters.
    pub fn parameters(&self) -> impl Iterator<Item = u32> + use<'a> {
        let is_prototype = self.kind == TypeKind::Prototype;
        self.entries(2).take_while(move |_| is_prototype).map(|[_, type_id, _]| type_id)
    }

    pub fn variables(&self) -> impl Iterator<Item = Placed> + use<'a> {
        let is_section = self.kind == TypeKind::Section;
        self.entries(3).take_while(move |_| is_section).map(|[variable_id, offset, size]| Placed {
            variable_id,
            offset,
            size,
        })
    }

    /// Names and values of a 32-bit enum.
    pub fn enumerators(&self) -> impl Iterator<Item = (&'a str, u32)> + use<'a> {
        let (home, is_enum) = (self.home, self.kind == TypeKind::Enum);
        self.entries(2).take_while(move |_| is_enum).map(move |[name, value, _]| (home.string(name), value))
    }

    /// Element type and number of elements of an array.
    pub fn array(&self) -> Option<(u32, u32)> {
        if self.kind != TypeKind::Array {
            return None;
        }
        let at = self.at + TYPE_BYTES;
        Some((self.home.word(at)?, self.home.word(at + 8)?))
    }
}

/// Type information of the kernel, or of a module on top of the kernel's.
#[derive(Debug)]
pub(crate) struct Btf {
    data: Vec<u8>,
    strings_at: usize,
    strings_end: usize,
    /// Where each type begins in `data`; the first is `first_id`.
    offsets: Vec<u32>,
    first_id: u32,
    first_string: u32,
    /// Open-addressed hash of names: ids, 0 where empty.
    by_name: Vec<u32>,
    base: Option<Arc<Btf>>,
}

fn bad(what: &str) -> SymbolsError {
    SymbolsError::new(
        SymbolsErrorKind::BadTypeInformation,
        format!("type information (BTF) is damaged or too new: {what}"),
    )
}

impl Btf {
    /// Reads type information; a module's refers to types and strings of its `base`.
    pub fn from_bytes(data: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self, SymbolsError> {
        let (first_id, first_string) = match &base {
            Some(base) => (base.end_id(), base.first_string + (base.strings_end - base.strings_at) as u32),
            None => (1, 0),
        };
        let mut btf = Self {
            data,
            strings_at: 0,
            strings_end: 0,
            offsets: Vec::new(),
            first_id,
            first_string,
            by_name: Vec::new(),
            base,
        };
        btf.index_types()?;
        btf.index_names();
        Ok(btf)
    }

    fn index_types(&mut self) -> Result<(), SymbolsError> {
        let magic = self.data.get(..2).map(|magic| u16::from_ne_bytes([magic[0], magic[1]]));
        if magic != Some(MAGIC) || self.data.len() < HEADER_BYTES || self.data.len() > u32::MAX as usize {
            return Err(bad("no header"));
        }
        let field = |at| self.word(at).map_or(0, |word| word as usize);
        let header = field(4);
        let types_at = header + field(8);
        let types_end = types_at + field(12);
        let strings_at = header + field(16);
        let strings_end = strings_at + field(20);
        if header < HEADER_BYTES || types_end > self.data.len() || strings_end > self.data.len() {
            return Err(bad("sections outside the data"));
        }
        // Newer kernels describe the size of each kind, so that readers can pass over kinds they do not know.
        let layout = if header >= HEADER_BYTES + 8 { header + field(24)..header + field(24) + field(28) } else { 0..0 };
        let mut offsets = Vec::with_capacity((types_end - types_at) / 28);
        let mut at = types_at;
        while at < types_end {
            offsets.push(at as u32);
            let info = self.word(at + 4).ok_or_else(|| bad("cut type"))?;
            let trailing = self.trailing_bytes(info, &layout).ok_or_else(|| bad("unknown kind of type"))?;
            at += TYPE_BYTES + trailing;
        }
        if at != types_end {
            return Err(bad("last type is cut"));
        }
        offsets.shrink_to_fit();
        (self.offsets, self.strings_at, self.strings_end) = (offsets, strings_at, strings_end);
        Ok(())
    }

    /// How many bytes follow the fixed part of a type.
    fn trailing_bytes(&self, info: u32, layout: &std::ops::Range<usize>) -> Option<usize> {
        let (kind, count) = kind_and_count(info);
        Some(match kind {
            1 | 14 | 17 => 4,
            2 | 7..=12 | 16 | 18 => 0,
            3 => 12,
            4 | 5 | 15 | 19 => count * 12,
            6 | 13 => count * 8,
            _ => {
                let entry = layout.start + kind as usize * 4;
                let [fixed, each, ..] = *self.data.get(entry..entry + 4).filter(|_| entry + 4 <= layout.end)? else {
                    return None;
                };
                usize::from(fixed) + usize::from(each) * count
            }
        })
    }

    fn index_names(&mut self) {
        let ids = self.first_id..self.end_id();
        let is_wanted =
            |id: &u32| self.own(*id).is_some_and(|found| found.kind.is_looked_up_by_name() && !found.name().is_empty());
        let wanted = ids.clone().filter(is_wanted).count();
        let mut slots = vec![0; (wanted * 2).next_power_of_two()];
        let mask = slots.len() - 1;
        for id in ids.filter(is_wanted) {
            let mut slot = hash(self.own(id).map_or("", |found| found.name())) & mask;
            while slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = id;
        }
        self.by_name = slots;
    }

    fn end_id(&self) -> u32 {
        self.first_id + self.offsets.len() as u32
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.data.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn string(&self, at: u32) -> &str {
        if at < self.first_string {
            return self.base.as_ref().map_or("", |base| base.string(at));
        }
        let strings = self.data.get(self.strings_at..self.strings_end).unwrap_or(&[]);
        let text = strings.get((at - self.first_string) as usize..).unwrap_or(&[]);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        std::str::from_utf8(&text[..end]).unwrap_or("")
    }

    fn own(&self, id: u32) -> Option<Type<'_>> {
        let at = *self.offsets.get(id.checked_sub(self.first_id)? as usize)? as usize;
        let info = self.word(at + 4)?;
        let (kind, count) = kind_and_count(info);
        let (kind, has_flag) = (TypeKind::of(kind), info >> 31 != 0);
        Some(Type { home: self, at, kind, count, has_flag, size_or_type: self.word(at + 8)? })
    }

    /// The type with this number, from here or from the base.
    pub fn get(&self, id: u32) -> Option<Type<'_>> {
        if id < self.first_id { self.base.as_ref()?.get(id) } else { self.own(id) }
    }

    /// The numbers of all types of this kind and name defined here (not in the base).
    pub fn by_name<'a>(&'a self, kind: TypeKind, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let mask = self.by_name.len().saturating_sub(1);
        let mut slot = hash(name) & mask;
        std::iter::from_fn(move || {
            let id = *self.by_name.get(slot)?;
            slot = (slot + 1) & mask;
            (id != 0).then_some(id)
        })
        .filter(move |id| self.own(*id).is_some_and(|found| found.kind == kind && found.name() == name))
    }

    /// The first struct of this name, from here or from the base.
    pub fn struct_named(&self, name: &str) -> Option<u32> {
        let here = self.by_name(TypeKind::Struct, name).next();
        here.or_else(|| self.base.as_ref()?.struct_named(name))
    }

    /// The numbers of all types defined here.
    pub fn ids(&self) -> std::ops::Range<u32> {
        self.first_id..self.end_id()
    }

    /// The type behind typedefs and modifiers.
    pub fn strip(&self, mut id: u32) -> Option<(u32, Type<'_>)> {
        for _ in 0..DEEPEST_NESTING {
            let found = self.get(id)?;
            if !matches!(found.kind, TypeKind::Typedef | TypeKind::Modifier) {
                return Some((id, found));
            }
            id = found.target();
        }
        None
    }

    /// The struct or union that a pointer of type `id` points to.
    pub fn pointee(&self, id: u32) -> Option<(u32, Type<'_>)> {
        let (_, pointer) = self.strip(id)?;
        if pointer.kind != TypeKind::Pointer {
            return None;
        }
        self.strip(pointer.target()).filter(|(_, to)| matches!(to.kind, TypeKind::Struct | TypeKind::Union))
    }

    /// Size of a type in bytes; `None` for what has none (functions, void).
    pub fn size_of(&self, id: u32) -> Option<u64> {
        self.size_at_depth(id, 0)
    }

    fn size_at_depth(&self, id: u32, depth: usize) -> Option<u64> {
        let (_, found) = self.strip(id)?;
        match found.kind {
            TypeKind::Pointer => Some(size_of::<usize>() as u64),
            TypeKind::Array if depth < DEEPEST_NESTING => {
                let (element, count) = found.array()?;
                Some(self.size_at_depth(element, depth + 1)?.saturating_mul(u64::from(count)))
            }
            TypeKind::Array | TypeKind::Function | TypeKind::Prototype => None,
            _ => Some(u64::from(found.size_or_type)),
        }
    }

    /// Offset and type of a field, looking into anonymous members.
    pub fn field(&self, struct_id: u32, name: &str) -> Option<(u32, u32)> {
        self.field_at_depth(struct_id, name, 0)
    }

    fn field_at_depth(&self, struct_id: u32, name: &str, depth: usize) -> Option<(u32, u32)> {
        if depth > DEEPEST_NESTING {
            return None;
        }
        let (_, outer) = self.strip(struct_id)?;
        for member in outer.members() {
            if member.name == name {
                return Some((member.offset, member.type_id));
            }
            if member.name.is_empty()
                && let Some((offset, type_id)) = self.field_at_depth(member.type_id, name, depth + 1)
            {
                return Some((member.offset.checked_add(offset)?, type_id));
            }
        }
        None
    }

    /// Offset of a field given as `struct`, `a.b.c`; arrays are not entered.
    pub fn offset_of(&self, struct_name: &str, path: &str) -> Option<u32> {
        let mut id = self.struct_named(struct_name)?;
        let mut offset = 0_u32;
        for name in path.split('.') {
            let (at, type_id) = self.field(id, name)?;
            offset = offset.checked_add(at)?;
            id = type_id;
        }
        Some(offset)
    }
}

/// Kind and number of entries of a type. Bits 16 to 23 of the count are zero before Linux 7.1.
const fn kind_and_count(info: u32) -> (u32, usize) {
    ((info >> 24) & 0x7f, (info & 0xff_ffff) as usize)
}

/// FNV-1a.
fn hash(text: &str) -> usize {
    let mixed = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (mixed ^ (mixed >> 32)) as usize
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Puts type information together, for tests on types that no running kernel has.
    #[derive(Default)]
    pub(crate) struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
        next_id: u32,
        first_string: u32,
    }

    impl Builder {
        pub fn new(base: Option<&Btf>) -> Self {
            let (next_id, first_string) =
                base.map_or((1, 0), |base| (base.end_id(), (base.strings_end - base.strings_at) as u32));
            Self { types: Vec::new(), strings: vec![0], next_id, first_string }
        }

        fn string(&mut self, text: &str) -> u32 {
            let at = self.strings.len() as u32 + self.first_string;
            self.strings.extend_from_slice(text.as_bytes());
            self.strings.push(0);
            if text.is_empty() { 0 } else { at }
        }

        fn push(&mut self, words: &[u32]) {
            self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }

        pub fn add(&mut self, kind: u32, name: &str, size_or_type: u32, entries: &[(&str, u32, u32)]) -> u32 {
            let name = self.string(name);
            self.push(&[name, (kind << 24) | entries.len() as u32, size_or_type]);
            for (name, type_id, place) in entries {
                let name = self.string(name);
                match kind {
                    15 => self.push(&[*type_id, *place, 8]),
                    13 | 6 => self.push(&[name, *type_id]),
                    _ => self.push(&[name, *type_id, place * 8]),
                }
            }
            self.next_id += 1;
            self.next_id - 1
        }

        pub fn int(&mut self, name: &str, size: u32) -> u32 {
            let id = self.add(1, name, size, &[]);
            self.push(&[size * 8]);
            id
        }

        pub fn array(&mut self, element: u32, count: u32) -> u32 {
            let id = self.add(3, "", 0, &[]);
            self.push(&[element, element, count]);
            id
        }

        pub fn bytes(self) -> Vec<u8> {
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            let mut all = Vec::from([0x9f, 0xeb, 1, 0]);
            all.extend([24, 0, types, types, strings].iter().flat_map(|word: &u32| word.to_ne_bytes()));
            all.extend(self.types);
            all.extend(self.strings);
            all
        }

        pub fn build(self, base: Option<Arc<Btf>>) -> Btf {
            Btf::from_bytes(self.bytes(), base).expect("the builder writes good type information")
        }
    }

    fn sample() -> Vec<u8> {
        let mut builder = Builder::new(None);
        let int = builder.int("int", 4);
        let inner = builder.add(4, "", 8, &[("deep", int, 4)]);
        let outer = builder.add(4, "outer", 16, &[("a", int, 0), ("", inner, 8)]);
        let pointer = builder.add(2, "", outer, &[]);
        let prototype = builder.add(13, "", int, &[("self", pointer, 0)]);
        builder.add(12, "outer_use", prototype, &[]);
        builder.bytes()
    }

    #[test]
    fn fields_are_found_through_anonymous_members() {
        let btf = Btf::from_bytes(sample(), None).expect("good");
        assert_eq!(btf.offset_of("outer", "deep"), Some(12));
        assert_eq!(btf.offset_of("outer", "absent"), None);
        assert_eq!(btf.offset_of("absent", "deep"), None);
    }

    #[test]
    fn a_modules_types_build_on_the_kernels() {
        let base = Arc::new(Btf::from_bytes(sample(), None).expect("good"));
        let outer = base.struct_named("outer").expect("defined");
        let mut builder = Builder::new(Some(&base));
        builder.add(4, "wrapper", 24, &[("inner", outer, 8)]);
        let module = builder.build(Some(Arc::clone(&base)));
        assert_eq!(module.offset_of("wrapper", "inner.deep"), Some(20));
        assert_eq!(module.struct_named("outer"), Some(outer));
        assert_eq!(base.struct_named("wrapper"), None);
    }

    #[test]
    fn damaged_type_information_is_an_error_or_empty_but_no_panic() {
        let good = sample();
        for length in 0..good.len() {
            let _ = Btf::from_bytes(good[..length].to_vec(), None);
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut odd = good.clone();
                odd[at] = value;
                let Ok(btf) = Btf::from_bytes(odd, None) else { continue };
                for id in 0..btf.end_id() + 2 {
                    let _ = (btf.size_of(id), btf.pointee(id), btf.field(id, "deep"), btf.get(id).map(|t| t.array()));
                }
            }
        }
    }

    #[test]
    fn a_type_that_refers_to_itself_ends() {
        let mut builder = Builder::new(None);
        builder.add(8, "loop", 1, &[]);
        builder.array(2, 2);
        builder.add(4, "nest", 8, &[("", 3, 0)]);
        let btf = builder.build(None);
        assert_eq!((btf.size_of(1), btf.size_of(2), btf.offset_of("nest", "x")), (None, None, None));
    }
}
