# SPDX-License-Identifier: Apache-2.0
"""Which instances are on which host, as one scheduler process knows it.

Two witnesses: what Nova lists for each host, which lags behind, and claims,
placements that this process or another one has just made. The newest word
about an instance wins, so that it is never counted on two hosts. What others
have to know is collected for whoever brings it to them
(reference/claims.rst). Knows no Nova object, no clock and no traffic; callers
serialise access.
"""

import collections
import dataclasses
import itertools
import operator

from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

__all__ = ['Claim', 'Residency']

#: An instance that was listed on a host before it was placed there again (a
#: resize to the same host) may be dropped from Nova's view while it runs
#: there; computes put that right every [compute]/scheduler_instance_sync
#: interval, 120 s by default. This much later it is believed to be gone.
RELIST_SECONDS = 180.0

#: Demands remembered for instances that have no learned model yet, and
#: attachments.
MAX_ASSUMED = 100_000
MAX_ATTACHED = 100_000

#: What one sees of another's claim the other is left to tell for so long: it
#: may have ended.
AUTHOR_SECONDS = 30.0

#: Instances of which the last word that was shared is remembered.
MAX_WORDS = 20_000


@dataclasses.dataclass(eq=False)
class Claim:
    """One placement that its host has not reported yet.

    :ivar instance_uuid: the instance
    :ivar host: where it was placed
    :ivar law: RateLaw it was admitted with
    :ivar expires: seconds; after this the placement is taken to have failed
    :ivar relisted: Nova listed it on this very host when it was placed, so
        that being listed there says nothing about this placement
    :ivar since: seconds; when it was made or heard of
    :ivar token: of the StoredClaim that it is known to others as, or None
    :ivar former: Claim that it has replaced, or None
    """

    instance_uuid: str
    host: str
    law: model.RateLaw
    expires: float
    relisted: bool
    since: float
    token: str | None = None
    former: object = None


class Residency:
    """Listings of hosts and claims, put together.

    :param author: what no other process is called, up to 20 characters, when
        others are to know of the claims made here; None: nobody is
    :param claimed_by: who that is, for people
    """

    def __init__(self, author=None, claimed_by=''):
        self._author = author
        self._claimed_by = claimed_by
        self._tokens = itertools.count(1)
        self._words = []         # StoredClaims to bring to others
        self._unsent = {}        # uuid -> placement among them
        self._last = collections.OrderedDict()  # uuid -> StoredClaim
        # uuid -> (StoredClaim for its author to tell, since when)
        self._untold = {}
        self._seen = 0           # number of the last write taken in
        self._listed = {}        # host -> list of uuids, as Nova has it
        self._hosts_of = {}      # uuid -> host, or [hosts], newest last
        self._claims = {}        # uuid -> Claim, oldest first
        self._claimed_on = collections.defaultdict(dict)  # host -> {uuid: 1}
        self._changed = set()    # hosts whose residents may have changed
        self._steps = {}         # host -> [(who came, who went)] since then
        #: Counts the doubts that turned out to be right.
        self.version = 0
        #: Counts the placements heard of.
        self.heard = 0
        self._gone = {}          # uuid -> until when what lists it is wrong
        self._moved = {}         # uuid -> when, until it is known to stay
        self._assumed = collections.OrderedDict()  # uuid -> {host: RateLaw}
        self._attached = collections.OrderedDict()  # uuid -> Attachments

    def observe(self, host, listed, now):
        """Take in what Nova lists for a host.

        :param host: name
        :param listed: list of instance uuids
        :param now: seconds, as every time here
        """
        known = self._listed.get(host)
        if known == listed:
            return
        self._listed[host] = listed
        if known is not None and listed[:len(known)] == known:
            came, went = listed[len(known):], ()
        else:
            before, after = set(known or ()), set(listed)
            came, went = after - before, before - after
        if known is None or not self._simple(host, came, went):
            self._changed.add(host)
        else:
            self._steps.setdefault(host, []).append((came, went))
        for uuid in went:
            self._leave(uuid, host)
            claim = self._claims.get(uuid)
            if claim is not None and claim.relisted and claim.host == host:
                claim.expires = min(claim.expires, now + RELIST_SECONDS)
        for uuid in came:
            self._arrive(uuid, host)
            claim = self._claims.get(uuid)
            if claim is not None and claim.host == host:
                # The host reports it: the listing takes over.
                self._drop(claim)
                self._became(claim, now)

    def _simple(self, host, came, went):
        """Return whether these are of this host alone, and not claimed."""
        return (self._claims.keys().isdisjoint(came)
                and self._gone.keys().isdisjoint(came)
                and self._hosts_of.keys().isdisjoint(came)
                and all(self._hosts_of.get(uuid) == host
                        and uuid not in self._claims
                        and uuid not in self._gone for uuid in went))

    def listed(self, host):
        """Return what was last observed for a host, or None."""
        return self._listed.get(host)

    def claim(self, instance_uuid, host, law, expires, now, known=True,
              shared=True, attachments=None):
        """Count an instance on a host from now on.

        A later claim for the same instance replaces the earlier one.

        :param known: False when the law is no more than a default: it counts
            for the claim and is not remembered
        :param shared: False for what others find out by themselves
        :param attachments: Attachments it is placed with, None: not known
        """
        source = self.host_of(instance_uuid)
        if source is not None:
            self._moved[instance_uuid] = now
        self._gone.pop(instance_uuid, None)
        token = None
        if shared and self._author is not None:
            token = f'{self._author}-{next(self._tokens)}'
            word = self._unsent[instance_uuid] = store.StoredClaim(
                instance_uuid, token, store.ASSUMED, host, source, law,
                known, expires - now, self._claimed_by, self._seen,
                attachments=attachments)
            self._tell(word)
        self._attach(instance_uuid, attachments)
        self._claim(instance_uuid, host, law, expires, now, token)
        if known:
            self._assume(instance_uuid, host, law)

    def _claim(self, instance_uuid, host, law, expires, now, token=None):
        former = self._drop_claim(instance_uuid)
        if former is not None:
            former.former = None     # one is all that can come back
        claim = Claim(instance_uuid, host, law, expires,
                      relisted=instance_uuid in self._listed.get(host, ()),
                      since=now, token=token, former=former)
        self._claims[instance_uuid] = claim
        self._claimed_on[host][instance_uuid] = 1
        self._changed.add(host)
        self._changed.update(self._hosts(instance_uuid))

    def withdraw(self, instance_uuid, now):
        """Take back the claim of an instance: it is where it was before."""
        claim = self._claims.get(instance_uuid)
        if claim is not None:
            self._void(claim, now)
            self._became(claim, now, store.FORGOTTEN)

    def _void(self, claim, now):
        """Drop a claim as if it had never been."""
        self._drop(claim)
        former = claim.former
        if former is not None and former.expires > now \
                and former.host not in self._hosts(claim.instance_uuid):
            self._claim(former.instance_uuid, former.host, former.law,
                        former.expires, former.since, former.token)

    def _drop_claim(self, uuid):
        claim = self._claims.get(uuid)
        if claim is not None:
            self._drop(claim)
        return claim

    def forget(self, instance_uuid, now):
        """Count one nowhere whose request has failed, and that was nowhere.

        Nova itself lists those of a server group on the hosts chosen for
        them, and leaves them there when the request fails; only here.
        """
        self.withdraw(instance_uuid, now)
        self._remove(instance_uuid, now)

    def remove(self, instance_uuid, now):
        """Count one nowhere that is no more, whoever lists it for a while."""
        self._remove(instance_uuid, now)
        self._change(instance_uuid, store.FORGOTTEN, None)

    def _remove(self, uuid, now):
        self._drop_claim(uuid)
        self._gone[uuid] = now + RELIST_SECONDS
        self._moved.pop(uuid, None)
        self.version += 1
        self._changed.update(self._hosts(uuid))

    @property
    def certain(self):
        """Whether no instance is doubtful, whatever is refused."""
        return not self._claims and not self._moved

    def doubtful(self, refused):
        """Return the instances that may not be what they seem.

        Those are claims for which a host is refused although they may have
        come to nothing, claims of instances that are listed elsewhere too,
        and instances that were moved or resized, which may have failed or
        may yet be reverted.

        :param refused: set of hosts
        :returns: {uuid: seconds when it was moved, or None}, oldest claims
            first
        """
        found = {uuid: None for uuid, claim in self._claims.items()
                 if claim.host in refused
                 or any(host != claim.host for host in self._hosts(uuid))}
        found.update(self._moved)
        return found

    def settle(self, instance_uuid, host, now, stays=True, law=None,
               expires=0.0):
        """Take in where a doubtful instance is for certain.

        :param host: its host
        :param stays: False while a resize may still be reverted
        :param law: RateLaw of its flavor, None when that says nothing
        :param expires: seconds, of a claim should its host not list it
        """
        self._settle(instance_uuid, host, now, stays, law, expires)
        self._change(instance_uuid,
                     store.CONFIRMED if stays else store.MOVED, host, law)

    def _settle(self, uuid, host, now, stays, law, expires):
        if stays:
            self._moved.pop(uuid, None)
        claim = self._claims.get(uuid)
        if self.host_of(uuid) != host:
            if claim is not None:
                self._drop(claim)
            self.version += 1
        if law is not None and law != self.assumed_law(uuid, host):
            self._assume(uuid, host, law)
            if claim is not None:
                claim.law = law
            self._changed.add(host)
            self.version += 1
        if self.host_of(uuid) != host:
            if host in self._hosts(uuid):
                self._changed.update(self._hosts(uuid))
                self._arrive(uuid, host)
            else:
                law = self.assumed_law(uuid, host)
                if law is None and claim is not None:
                    law = claim.law
                if law is not None:
                    self._claim(uuid, host, law, expires, now)

    def state(self, instance_uuid, host, law):
        """Remember what an instance states that it demands on its host.

        :param law: RateLaw
        """
        self._assume(instance_uuid, host, law)
        self._changed.add(host)

    def _assume(self, uuid, host, law):
        # By host: a reverted resize brings back the demand of before.
        laws = dict(self._assumed.get(uuid, ()))
        laws.pop(host, None)     # the latest goes last
        laws[host] = law
        self._assumed[uuid] = laws
        self._assumed.move_to_end(uuid)
        if len(self._assumed) > MAX_ASSUMED:
            self._assumed.popitem(last=False)

    def expire(self, now):
        """Forget the claims that have run out.

        :returns: list of the expired Claims
        """
        expired = [claim for claim in self._claims.values()
                   if claim.expires <= now]
        for claim in expired:
            self._drop(claim)
            self._became(claim, now, store.EXPIRED)
            self._unsent.pop(claim.instance_uuid, None)
        for uuid, (word, since) in list(self._untold.items()):
            if since + AUTHOR_SECONDS <= now:
                del self._untold[uuid]
                self._words.append(word)
        for uuid in [uuid for uuid, until in self._gone.items()
                     if until <= now]:
            del self._gone[uuid]
            self._changed.update(self._hosts(uuid))
        return expired

    @property
    def claims(self):
        """The open claims, oldest first."""
        return list(self._claims.values())

    def claim_of(self, instance_uuid):
        """Return the open Claim of an instance, or None."""
        return self._claims.get(instance_uuid)

    def take_changed(self):
        """Return the hosts whose residents may have changed since asked."""
        changed, self._changed = self._changed, set()
        changed.update(self._steps)
        self._steps = {}
        return changed

    def take_steps(self):
        """Return what came and went since asked, where that is all.

        :returns: {host: [(uuids that came, uuids that went)]}; of these hosts
            :meth:`take_changed` does not tell any more
        """
        steps, self._steps = self._steps, {}
        for host in self._changed.intersection(steps):
            del steps[host]
        return steps

    def residents(self, host):
        """Return the uuids of the instances that count on a host."""
        listed = self._listed.get(host, ())
        # Nearly always: listed here and nowhere else, and nothing claimed.
        if all(map(operator.eq, map(self._hosts_of.get, listed),
                   itertools.repeat(host))) and (
                self._claims.keys().isdisjoint(listed)
                and self._gone.keys().isdisjoint(listed)):
            residents = list(listed)
        else:
            residents = [uuid for uuid in listed
                         if self.host_of(uuid) == host]
        claimed = self._claimed_on.get(host)
        if claimed:
            present = set(residents)
            residents.extend(uuid for uuid in claimed if uuid not in present)
        return residents

    def host_of(self, instance_uuid):
        """Return the one host an instance counts on, or None."""
        claim = self._claims.get(instance_uuid)
        if claim is not None:
            return claim.host
        if instance_uuid in self._gone:
            return None
        hosts = self._hosts(instance_uuid)
        return hosts[-1] if hosts else None

    def assumed_law(self, instance_uuid, host):
        """Return the RateLaw an instance was placed with, or None.

        The one of its claim, then for this host, then for any.
        """
        claim = self._claims.get(instance_uuid)
        if claim is not None and claim.host == host:
            return claim.law
        laws = self._assumed.get(instance_uuid)
        if laws is None:
            return None
        law = laws.get(host)
        return next(reversed(laws.values())) if law is None else law

    def attached(self, instance_uuid):
        """Return the Attachments an instance was placed with, or None."""
        return self._attached.get(instance_uuid)

    def _attach(self, uuid, attachments):
        if attachments is None:
            return
        host = self.host_of(uuid)
        if host is not None and self._attached.get(uuid) != attachments:
            self._changed.add(host)
        self._attached[uuid] = attachments
        self._attached.move_to_end(uuid)
        if len(self._attached) > MAX_ATTACHED:
            self._attached.popitem(last=False)

    # What is shared.

    def take_words(self):
        """Return what others have to know: StoredClaims, oldest first.

        They hold for ``seconds`` from now on. :meth:`sent` has to be called
        once they were brought to the others.
        """
        words, self._words = self._words, []
        return words

    def sent(self, words):
        """Take in that words are with the others now."""
        for word in words:
            unsent = self._unsent.get(word.instance_uuid)
            if unsent is not None and unsent.token == word.token:
                del self._unsent[word.instance_uuid]

    def take_in(self, changes, now):
        """Take in what all have said.

        :param changes: :class:`~vswitch_aware_scheduler.store.ClaimChanges`
        """
        self._seen = changes.seen.number
        if changes.complete:
            # Those that are over were purged while nobody was listening.
            open_ones = {word.token for word in changes.claims}
            for claim in self.claims:
                if self.is_foreign(claim) and claim.token not in open_ones:
                    self._drop(claim)
        for word in changes.claims:
            self.take(word, now, changes.complete)

    def take(self, word, now, late=False):
        """Take in one word on an instance, newer than what is known of it.

        :param word: StoredClaim
        :param late: it may be much older than the listings
        """
        uuid = word.instance_uuid
        last = self._last.get(uuid)
        if uuid in self._untold and (word.state != store.ASSUMED
                                     or last is None
                                     or word.token != last.token):
            del self._untold[uuid]
        if self._is_mine(word) and word.state == store.ASSUMED or (
                last is not None and last.token == word.token
                and not store.may_replace(word, last)):
            return
        if uuid in self._unsent:
            if word.state != store.ASSUMED \
                    or store.may_replace(self._unsent[uuid], word):
                return           # by when that is told it will be newer
            del self._unsent[uuid]
        self._remember(word)
        self._attach(uuid, word.attachments)
        claim = self._claims.get(uuid)
        about_claim = claim is not None and claim.token == word.token
        if word.state == store.ASSUMED:
            if word.seconds > 0:
                self._take_placement(word, now)
        elif word.state in (store.MOVED, store.CONFIRMED):
            if about_claim or not late or uuid in self._moved:
                self._settle(uuid, word.host, now,
                             word.state == store.CONFIRMED,
                             word.law if word.stated else None,
                             now + min(word.seconds, RELIST_SECONDS))
            if word.state == store.MOVED and self.host_of(uuid) is not None:
                self._moved.setdefault(uuid, now)
        elif word.state == store.FORGOTTEN and word.host is None:
            if about_claim or not late:
                self._remove(uuid, now)
        elif about_claim and word.state == store.FORGOTTEN:
            self._void(claim, now)
        elif about_claim:
            self._drop(claim)

    def _take_placement(self, word, now):
        uuid, host = word.instance_uuid, word.host
        self.heard += 1
        if word.source is not None or self.host_of(uuid) not in (None, host):
            self._moved[uuid] = now
        self._gone.pop(uuid, None)
        if word.source is None and host in self._hosts(uuid):
            # The host was faster.
            self._drop_claim(uuid)
            if self.host_of(uuid) != host:
                self._changed.update(self._hosts(uuid))
                self._arrive(uuid, host)
            self._leave_to_author(
                dataclasses.replace(word, state=store.CONFIRMED), now)
        else:
            self._claim(uuid, host, word.law, now + word.seconds, now,
                        word.token)
        if word.stated:
            self._assume(uuid, host, word.law)

    def is_foreign(self, claim):
        """Return whether another process has made a claim."""
        return claim.token is not None and not self._is_mine(claim)

    def _is_mine(self, claim):
        return self._author is not None \
            and claim.token.startswith(f'{self._author}-')

    def _became(self, claim, now, state=None):
        """Tell what has become of a claim, when it is this one's to tell.

        :param state: None: it is on its host, as that reports
        """
        last = self._last.get(claim.instance_uuid)
        if claim.token is None or last is None or last.token != claim.token:
            return
        word = dataclasses.replace(last, state=state or _reported(last),
                                   host=claim.host)
        if store.may_replace(word, last):
            if self._is_mine(claim):
                self._tell(word)
            else:
                self._leave_to_author(word, now)

    def _leave_to_author(self, word, now):
        self._remember(word)
        self._untold[word.instance_uuid] = word, now

    def _change(self, uuid, state, host, law=None):
        """Tell what was found out about an instance others know of."""
        last = self._last.get(uuid)
        if last is None:
            return
        word = dataclasses.replace(last, state=state, host=host)
        if law is not None:
            word = dataclasses.replace(word, law=law, stated=True)
        if store.may_replace(word, last):
            self._tell(word)

    def _tell(self, word):
        self._words.append(word)
        self._remember(word)

    def _remember(self, word):
        self._last[word.instance_uuid] = word
        self._last.move_to_end(word.instance_uuid)
        if len(self._last) > MAX_WORDS:
            self._last.popitem(last=False)

    def _hosts(self, uuid):
        hosts = self._hosts_of.get(uuid)
        if hosts is None:
            return ()
        return (hosts,) if isinstance(hosts, str) else hosts

    def _arrive(self, uuid, host):
        hosts = self._hosts_of.get(uuid)
        if hosts is None:
            self._hosts_of[uuid] = host
            return
        others = [one for one in self._hosts(uuid) if one != host]
        self._hosts_of[uuid] = others + [host]
        self._changed.update(others)

    def _leave(self, uuid, host):
        rest = [one for one in self._hosts(uuid) if one != host]
        self._changed.update(rest)
        if not rest:
            self._hosts_of.pop(uuid, None)
        else:
            self._hosts_of[uuid] = rest[0] if len(rest) == 1 else rest

    def _drop(self, claim):
        self._claims.pop(claim.instance_uuid, None)
        self._claimed_on[claim.host].pop(claim.instance_uuid, None)
        if not self._claimed_on[claim.host]:
            del self._claimed_on[claim.host]
        self._changed.add(claim.host)
        self._changed.update(self._hosts(claim.instance_uuid))


def _reported(word):
    """Return the state of a claim once its host reports the instance."""
    return store.CONFIRMED if word.source is None else store.MOVED
