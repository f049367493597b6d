use super::*;
use crate::command::testing::*;
use crate::lock::{Deadline, Grant, Patience, Stored, Write};

const UUID: MintedOwner = *b"00000000-0000-4000-8000-000000000001";

fn parse(line: &str) -> Result<Request<'_>, Error> {
    Request::parse(&words(line), &LIMITS, || UUID)
}

#[track_caller]
fn done<'r>(request: &'r Request<'_>, stored: Stored<'_>) -> Answer<'r> {
    let (outcome, write) = decide(request, stored, 0, &mut FenceClock::new()).unwrap();
    Answer { write, reply: request.reply(&outcome).unwrap().unwrap() }
}

#[test]
fn mistakes_are_found_in_the_order_of_the_page() {
    assert_eq!(parse("lock.acquire k a").unwrap_err(), Error::WrongArity);
    assert_eq!(parse("lock.acquire k  x FOO").unwrap_err(), Error::OwnerLength);
    assert_eq!(parse("lock.acquire k a x FOO").unwrap_err(), Error::TtlNotPositive);
    for line in [
        "5 FOO",
        "5 BLOCK",
        "5 FOO 1",
        "5 BLOCK 1 BLOCK",
        "5 BLOCK 1 BLOCK 1",
        "5 SHARE",
        "5 SHARE 1 BLOCK 1 SHARE 1",
        "5 SHARE x BLOCK x FOO",
        "5 EPHEMERAL",
        "5 EPHEMERAL 1 EPHEMERAL 1",
        "5 EPHEMERAL 1 SHARE 1 BLOCK 1 FOO 1",
        "5 SHARES 1",
        "5 BLOCKS 1",
        "5 TICKETS 1",
        "5 TICKET 1 NOTICE c",
        "5 EPHEMERIS 1",
    ] {
        assert_refused(
            parse(&format!("lock.acquire k a {line}")),
            "ERR unknown option, expected SHARE holders, BLOCK milliseconds, \
             TICKET milliseconds, NOTIFY channel, EPHEMERAL grace or \
             ALSO numkeys key [key ...], each at most once",
        );
    }
    assert_eq!(parse("lock.acquire k a 5 BLOCK x").unwrap_err(), Error::PatienceOutOfRange);
    for line in ["5 SHARE x BLOCK x", "5 BLOCK x SHARE x"] {
        let refused = parse(&format!("lock.acquire k a {line}")).unwrap_err();
        assert_eq!(refused, Error::ShareOutOfRange);
    }
    for line in ["5 EPHEMERAL x BLOCK x", "5 BLOCK x EPHEMERAL x"] {
        let refused = parse(&format!("lock.acquire k a {line}")).unwrap_err();
        assert_eq!(refused, Error::PatienceOutOfRange);
    }
    assert_eq!(parse("lock.acquire k a 5 EPHEMERAL -1").unwrap_err(), Error::GraceOutOfRange);
    let request = parse("lock.acquire k a 5 BLOCK 7 ephemeral 0 SHARE 2").unwrap();
    assert_eq!(request.grace().map(Grace::millis), Some(0));
    for line in ["lock.acquire k a 5 share 5 BLOCK 1", "lock.acquire k a 5 block 1 Share 5"] {
        let request = parse(line).unwrap();
        assert_eq!(request.share.number(), 5);
        assert_eq!(request.wait, Some(Wait::Block(Patience::from_millis(1).unwrap())));
    }
}

#[test]
fn nobody_waits_for_a_lock_whose_key_is_very_long() {
    let longest = "k".repeat(args::LONGEST_KEY_TO_WAIT_FOR);
    for (options, may) in
        [("", true), (" SHARE 0", true), (" BLOCK 1", false), (" TICKET 1", false)]
    {
        let keys = |key: &str, other: &str| {
            let line = format!("LOCK.ACQUIRE {key} a 1000{options}");
            [line.clone(), format!("{line} ALSO 1 {other}")]
        };
        let longer = format!("{longest}k");
        for line in keys(&longest, "l") {
            assert!(parse(&line).is_ok(), "{options}");
        }
        for line in [keys(&longer, "l"), keys("l", &longer)].into_iter().flatten() {
            let is_named = line.contains(&longer);
            assert_eq!(parse(&line).is_ok(), may || !is_named, "{options}");
        }
    }
}

#[test]
fn a_grant_is_published_only_for_a_ticket_that_names_a_channel() {
    let channel = |line| parse(line).map(|request| request.channel());
    assert_eq!(channel("lock.acquire k a 5 TICKET 9 NOTIFY turn"), Ok(Some(&b"turn"[..])));
    for line in ["k a 5 TICKET 9", "k a 5 BLOCK 9", "k a 5", "k a 5 SHARE 2"] {
        let line = format!("lock.acquire {line}");
        assert_eq!(parse(&line).unwrap().channel(), None, "{line}");
    }
    for line in ["k a 5 NOTIFY turn", "k a 5 BLOCK 9 NOTIFY turn"] {
        let line = format!("lock.acquire {line}");
        assert_eq!(parse(&line).unwrap_err(), Error::NotifyWithoutTicket, "{line}");
    }
}

#[test]
fn the_fence_of_several_locks_is_the_reply_whether_they_are_granted_now_or_were_before() {
    let fence = FenceClock::new().mint(NOW).fence().unwrap();
    for (line, owner) in [("k a 5 ALSO 1 x", "a"), ("k * 5 TICKET 5 ALSO 1 x", "*")] {
        let line = format!("lock.acquire {line}");
        let request = parse(&line).unwrap();
        let wanted = request.wanted().unwrap();
        let deadline = Deadline::from_millis(NOW.millis() + 5);
        let grant = Grant { owner: wanted.owner, fence, deadline, share: wanted.share };
        let reply = || match owner {
            "*" => Reply::Array(vec![Reply::Bytes(&UUID), Reply::number(fence.number())]),
            _ => Reply::number(fence.number()),
        };
        assert_eq!(request.reply(&Decision::Granted(grant)), Ok(Some(reply())), "{line}");
        let again = Decision::Again { wanted, fence_number: fence.number() };
        assert_eq!(request.reply(&again), Ok(Some(reply())));
    }
}

#[test]
fn who_is_ready_to_wait_waits_for_a_lock_that_is_not_to_be_had() {
    let patient = parse("lock.acquire k b 5000 block 70").unwrap();
    let wait = Decision::Wait(Wait::Block(Patience::from_millis(70).unwrap()));
    let held = Held::by("a", 5_000);
    let outcome = decide(&patient, held.stored(), 0, &mut FenceClock::new());
    assert_eq!(outcome, Ok((wait, Write::Keep)));
    let outcome = decide(&patient, Stored::Nothing, 1, &mut FenceClock::new());
    assert!(matches!(outcome, Ok((Decision::Wait(_), Write::Keep))));
    assert!(matches!(done(&patient, Stored::Nothing).write, Write::Hold { .. }));
}

#[test]
fn a_try_does_not_overtake_a_queue() {
    let request = parse("lock.acquire k b 5000").unwrap();
    let outcome = decide(&request, Stored::Nothing, 1, &mut FenceClock::new());
    let owner = Owner::new(b"b").unwrap();
    assert_eq!(outcome, Ok((Decision::Busy { at: 0, owner }, Write::Keep)));
}

#[test]
fn a_free_lock_is_granted_and_the_fence_is_the_reply() {
    let request = parse("lock.acquire k a 5000").unwrap();
    let answer = done(&request, Stored::Nothing);
    let Write::Hold { owner, fence, deadline, .. } = answer.write else {
        panic!("no grant: {answer:?}")
    };
    assert_eq!(owner.as_bytes(), b"a");
    assert_eq!(deadline.unwrap().millis(), NOW.millis() + 5_000);
    assert_eq!(answer.reply, Reply::number(fence.number()));
}

#[test]
fn a_minted_owner_comes_back_with_the_fence() {
    let request = parse("lock.acquire k * 5000").unwrap();
    let answer = done(&request, Stored::Nothing);
    let Write::Hold { owner, fence, .. } = answer.write else { panic!("no grant: {answer:?}") };
    assert_eq!(owner.as_bytes(), UUID);
    let fence = Reply::number(fence.number());
    assert_eq!(answer.reply, Reply::Array(vec![Reply::Bytes(&UUID), fence]));
}

#[test]
fn another_owners_lock_is_nil_for_a_named_and_a_minted_owner() {
    let held = Held::by("a", 5_000);
    for line in ["lock.acquire k b 5000", "lock.acquire k * 5000"] {
        let request = parse(line).unwrap();
        let answer = done(&request, held.stored());
        assert_eq!(answer, Answer::unchanged(Reply::Nil));
    }
}

#[test]
fn a_retry_gets_the_same_fence_and_the_longer_lease() {
    let held = Held::by("a", 5_000);
    let reply = || Reply::number(held.fence_number);
    let shorter = parse("lock.acquire k a 4000").unwrap();
    let answer = done(&shorter, held.stored());
    assert_eq!(answer, Answer::unchanged(reply()));
    let longer = parse("lock.acquire k a 6000").unwrap();
    let answer = done(&longer, held.stored());
    let end = Deadline::from_millis(NOW.millis() + 6_000);
    assert_eq!(answer, Answer { write: Write::Expire(end), reply: reply() });
}

#[test]
fn the_holder_of_a_foreign_lock_gets_fence_0() {
    let request = parse("lock.acquire k 12:ab 5000").unwrap();
    let answer = done(&request, foreign("12:ab"));
    assert_eq!(answer, Answer::unchanged(Reply::Integer(0)));
}

#[test]
fn another_type_of_key_is_refused() {
    let request = parse("lock.acquire k a 5000").unwrap();
    let outcome = decide(&request, Stored::OtherType, 0, &mut FenceClock::new());
    assert_eq!(outcome, Err(Error::WrongType));
}

#[test]
fn other_locks_are_named_anywhere_among_the_options() {
    let also = |line: &str| {
        let line = format!("lock.acquire k a 5 {line}");
        let request = parse(&line).unwrap();
        let keys = &request.also().unwrap().keys;
        (keys.len(), request.share.number(), request.wait.is_some(), request.grace.is_some())
    };
    assert_eq!(also("ALSO 2 x y"), (2, 1, false, false));
    assert_eq!(also("SHARE 0 ALSO 2 SHARE 1 BLOCK 7 EPHEMERAL 1"), (2, 0, true, true));
    assert_eq!(also("also 2 BLOCK 9 TICKET 8 NOTIFY c SHARE 2"), (2, 2, true, false));
    assert!(parse("lock.acquire ALSO ALSO 5").unwrap().also().is_none());
    let named_so = parse("lock.acquire ALSO ALSO 5 ALSO 1 also").unwrap();
    assert_eq!(named_so.owner().unwrap().as_bytes(), b"ALSO");
    assert_eq!(named_so.also().unwrap().keys, [b"also"]);
}

#[test]
fn mistakes_about_other_locks_are_found_with_those_about_unknown_words() {
    let mistake = |line| parse(&format!("lock.acquire k a 5 {line}")).unwrap_err();
    assert_eq!(mistake("ALSO"), Error::KeyNumberOutOfRange);
    assert_eq!(mistake("SHARE x ALSO 0"), Error::KeyNumberOutOfRange);
    assert_eq!(mistake("FOO 1 ALSO 0"), Error::UnknownOption);
    assert_eq!(mistake("ALSO 1 k FOO"), Error::KeyTwice);
    assert_eq!(mistake("ALSO 3 x BLOCK"), Error::FewerKeys);
    assert_eq!(mistake("ALSO 1 x ALSO 1 y"), Error::UnknownOption);
    assert_eq!(mistake("ALSO 1 x y"), Error::UnknownOption);
    assert_eq!(mistake("ALSO 1 x SHARE x BLOCK x"), Error::ShareOutOfRange);
    assert_eq!(mistake("BLOCK 1 TICKET 1 ALSO 1 x"), Error::BlockWithTicket);
    assert_eq!(mistake("TICKET 5 NOTIFY also ALSO 1 x"), Error::ChannelReserved);
}

#[test]
fn a_client_with_a_ticket_is_told_nothing_yet_unless_its_owner_was_made_up() {
    let minted = || Reply::Array(vec![Reply::Bytes(&UUID), Reply::Nil]);
    for (line, reply) in [
        ("k b 5", Reply::Nil),
        ("k b 5 TICKET 5", Reply::Nil),
        ("k * 5", Reply::Nil),
        ("k * 5 TICKET 5", minted()),
    ] {
        let line = format!("lock.acquire {line}");
        let request = parse(&line).unwrap();
        let answer = done(&request, Held::by("a", 5_000).stored());
        assert_eq!(answer, Answer::unchanged(reply), "{line}");
    }
}

#[test]
fn a_notice_has_the_fence_then_the_length_of_the_owner_then_owner_and_key() {
    let owner = Owner::new(b"an owner").unwrap();
    assert_eq!(notice(17, owner, b"a key"), b"17 8 an owner a key");
}

#[test]
fn a_client_that_waits_for_several_is_told_nothing_yet_unless_its_owner_was_made_up() {
    let (theirs, mine) = (Held::by("b", 5_000), Held::by("a", 5_000));
    let minted = || Reply::Array(vec![Reply::Bytes(&UUID), Reply::Nil]);
    for (line, waits, reply) in [
        ("k a 5 ALSO 1 x", false, Reply::Nil),
        ("k a 5 TICKET 5 ALSO 1 x", true, Reply::Nil),
        ("k * 5 ALSO 1 x", false, Reply::Nil),
        ("k * 5 TICKET 5 ALSO 1 x", true, minted()),
    ] {
        let line = format!("lock.acquire {line}");
        let request = parse(&line).unwrap();
        let (busy, _) = decide(&request, theirs.stored(), 0, &mut FenceClock::new()).unwrap();
        assert_eq!(matches!(busy, Decision::Wait(_)), waits, "{line}");
        assert_eq!(request.reply(&busy), Ok(Some(reply)), "{line}");
    }
    let request = parse("lock.acquire k a 5 TICKET 5 ALSO 1 x").unwrap();
    let owner = request.owner().unwrap();
    let fences = &mut FenceClock::new();
    let standings = [theirs, mine]
        .map(|held| request.stand(&held.stored().holders(owner, NOW, fences).unwrap(), 0));
    let kept = request.decide(&standings, NOW, fences).unwrap();
    let refused = Decision::NotUpgraded { at: 0, owner };
    assert_eq!(kept, refused, "it must not wait with one in its hand");
    assert_eq!(request.reply(&kept), Ok(Some(Reply::Nil)));
}
