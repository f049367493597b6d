//! What the crate offers, compared with public-api.txt, so that no change of it goes unnoticed.
//!
//! The listing has the declarations of what `src/lib.rs` exports, for all features, without bodies
//! and private parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Field, Fields, File, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

const ACCEPT: &str = "LEASEHOLD_ACCEPT_API";

/// What a caller can tell from an attribute. Documentation is none of it.
const ATTRIBUTES: [&str; 5] = ["cfg", "deprecated", "derive", "must_use", "non_exhaustive"];

#[test]
fn the_public_interface_is_the_one_that_is_listed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("public-api.txt");
    let offered = prettyplease::unparse(&interface());
    if env::var_os(ACCEPT).is_some() {
        fs::write(&page, &offered).unwrap();
    }
    let listed = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        offered == listed,
        "clients/rust/public-api.txt lists another interface. If the change is meant, run this test with \
         {ACCEPT}=1, and say in the changelog whether it breaks callers:\n{}",
        difference(&listed, &offered)
    );
}

/// The lines from the first that differs to the last one.
fn difference(listed: &str, offered: &str) -> String {
    let [mut listed, mut offered] = [listed, offered].map(|text| text.lines().collect::<Vec<_>>());
    for _ in ["from the end", "from the start"] {
        while !listed.is_empty() && listed.last() == offered.last() {
            listed.pop();
            offered.pop();
        }
        listed.reverse();
        offered.reverse();
    }
    let signed = |sign: char, lines: &[&str]| -> String {
        lines.iter().map(|line| format!("{sign} {line}\n")).collect()
    };
    signed('-', &listed) + &signed('+', &offered)
}

/// Futures that hold a guard are spawned on runtimes with several threads.
#[test]
fn everything_can_be_sent_and_shared_between_threads() {
    fn is_sent_and_shared<T: Send + Sync>() {}
    is_sent_and_shared::<leasehold_client::AllGuard>();
    is_sent_and_shared::<leasehold_client::blocking::Guard>();
    is_sent_and_shared::<leasehold_client::blocking::Locks>();
    is_sent_and_shared::<leasehold_client::Election>();
    is_sent_and_shared::<leasehold_client::Error>();
    is_sent_and_shared::<leasehold_client::Guard>();
    is_sent_and_shared::<leasehold_client::Leadership>();
    is_sent_and_shared::<leasehold_client::Locks>();
    is_sent_and_shared::<leasehold_client::Options>();
    is_sent_and_shared::<leasehold_client::Quorum>();
    is_sent_and_shared::<leasehold_client::QuorumGuard>();
    is_sent_and_shared::<leasehold_client::Request>();
    is_sent_and_shared::<leasehold_client::Settings>();
    is_sent_and_shared::<leasehold_client::Target>();
}

fn interface() -> File {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = parsed(&source.join("lib.rs"));
    let mut offered = Vec::new();
    let mut public_modules = Vec::new();
    let mut names = Vec::new();
    for item in root.items {
        match item {
            Item::Use(item) if is_public(&item.vis) => {
                exported(&item.tree, &mut names);
                offered.push(Item::Use(item));
            }
            Item::Mod(module) if is_public(&module.vis) => public_modules.push(module),
            _ => {}
        }
    }
    let mut files = files_below(&source);
    for mut module in public_modules {
        let at = source.join(module.ident.to_string());
        let (inside, outside): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| file.with_extension("").starts_with(&at));
        files = outside;
        let mut items = Vec::new();
        for file in inside {
            items.extend(parsed(&file).items);
        }
        let names: Vec<_> = items.iter().filter_map(public_name).collect();
        module.content = Some((Default::default(), declarations(items, &names)));
        module.semi = None;
        offered.push(Item::Mod(module));
    }
    let items = files.iter().flat_map(|file| parsed(file).items).collect();
    offered.extend(declarations(items, &names));
    let mut file = File { shebang: None, attrs: Vec::new(), items: offered };
    Bare.visit_file_mut(&mut file);
    file
}

/// Of these names, sorted by them.
fn declarations(items: Vec<Item>, names: &[String]) -> Vec<Item> {
    let mut found = BTreeMap::<(String, usize), Item>::new();
    for item in items {
        let (name, item) = match item {
            Item::Impl(item) => match declared(item, names) {
                Some((name, item)) => (name, Item::Impl(item)),
                None => continue,
            },
            item => match public_name(&item).filter(|name| names.contains(name)) {
                Some(name) => (name, item),
                None => continue,
            },
        };
        // The type itself first, then what it does, in the order of the source.
        let place = if matches!(item, Item::Impl(_)) { found.len() + 1 } else { 0 };
        assert!(found.insert((name, place), item).is_none(), "two public items of one name");
    }
    found.into_values().collect()
}

/// What a block of an implementation offers, and on which type.
fn declared(mut item: ItemImpl, names: &[String]) -> Option<(String, ItemImpl)> {
    let Type::Path(of) = &*item.self_ty else { return None };
    let name = of.path.segments.last()?.ident.to_string();
    if !names.contains(&name) {
        return None;
    }
    let of_trait = item.trait_.is_some();
    item.items.retain(|item| match item {
        ImplItem::Fn(function) => !of_trait && is_public(&function.vis),
        ImplItem::Const(constant) => of_trait || is_public(&constant.vis),
        ImplItem::Type(_) => true,
        _ => false,
    });
    (of_trait || !item.items.is_empty()).then_some((name, item))
}

/// Takes out bodies, private fields, and attributes that callers do not see.
struct Bare;

impl VisitMut for Bare {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let is_seen =
            |attribute: &Attribute| ATTRIBUTES.iter().any(|seen| attribute.path().is_ident(seen));
        attributes.retain(is_seen);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.clear();
    }

    /// Whether a function changes what it was given is no concern of its callers.
    fn visit_receiver_mut(&mut self, receiver: &mut syn::Receiver) {
        if receiver.reference.is_none() {
            receiver.mutability = None;
        }
    }

    fn visit_item_struct_mut(&mut self, item: &mut syn::ItemStruct) {
        match &mut item.fields {
            Fields::Named(fields) => {
                let all = std::mem::take(&mut fields.named);
                let count = all.len();
                let mut seen: Punctuated<Field, _> =
                    all.into_iter().filter(|field| is_public(&field.vis)).collect();
                if seen.len() < count {
                    seen.push(syn::parse_quote!(private: ()));
                }
                fields.named = seen;
            }
            Fields::Unnamed(fields) => {
                for field in &mut fields.unnamed {
                    if !is_public(&field.vis) {
                        field.ty = syn::parse_quote!(());
                    }
                }
            }
            Fields::Unit => {}
        }
        visit_mut::visit_item_struct_mut(self, item);
    }
}

/// The names that others see.
fn exported(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => exported(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| exported(tree, names)),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("export each item by its own name"),
    }
}

fn public_name(item: &Item) -> Option<String> {
    let (name, visibility) = match item {
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        _ => return None,
    };
    is_public(visibility).then(|| name.to_string())
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn parsed(file: &Path) -> File {
    let text = fs::read_to_string(file).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
