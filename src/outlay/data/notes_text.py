"""How the embedded discharge notes say things: paraphrases of each kind of fact, and routine text.

Templates are `str.format` over the fact's own words. `{v}` is the value, written in one of its accepted forms.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrases:
    """One kind of fact. `now` states the value that holds at discharge; `daily` the value of the day, in a progress note."""

    question: str
    cue: str  # the first words of an answer in a whole sentence
    now: tuple[str, ...]
    daily: tuple[str, ...] = ()  # empty: `now` fits every day
    daily_fits_last: bool = True  # False: once the last value holds, only `now` fits


KINDS = {
    "diagnosis": Phrases(
        "What was the principal diagnosis?",
        "The principal diagnosis was",
        (
            "The principal diagnosis was {v}.",
            "Overall presentation was most consistent with {v}.",
            "Work-up established {v} as the cause of the presentation.",
            "Final diagnosis: {v}.",
            "Admitted with and treated for {v}.",
            "Primary team and consultants agreed on a diagnosis of {v}.",
            "Dx this admission: {v}.",
            "In summary, the patient was hospitalized for {v}.",
        ),
        (
            "Impression: {v}.",
            "Being treated for {v}.",
            "Picture today best explained by {v}.",
            "Assessment: {v}.",
            "Leading diagnosis is {v}.",
        ),
    ),
    "drug": Phrases(
        "Which {klass} was the patient discharged on?",
        "The {klass} at discharge was",
        (
            "Discharged on {v} as the {klass}.",
            "The {klass} at discharge is {v}.",
            "{klass} changed to {v}, to be continued at home.",
            "{klass}: now {v} (final).",
            "Will go home on {v} as the {klass} of choice.",
            "Transitioned from {old} to {v}.",
            "{v} replaced {old} and is the {klass} to continue.",
            "Final {klass} is {v}, well tolerated.",
        ),
        (
            "{klass}: {v}.",
            "Continues on {v}.",
            "Receiving {v} today.",
            "{klass} plan: {v}.",
        ),
    ),
    "dose": Phrases(
        "What dose of {drug} was the patient discharged on?",
        "The dose of {drug} at discharge was",
        (
            "{drug} was titrated to {v} {sig}, the discharge dose.",
            "Discharge dose of {drug} is {v} {sig}.",
            "Final dose: {drug} {v} {sig}.",
            "Please continue {drug} at {v} {sig}.",
            "{drug} dose changed to {v} {sig} and tolerated well.",
            "Now stable on {drug} {v} {sig}.",
            "Goes home on {drug} {v} {sig}.",
            "Pharmacy confirmed {drug} {v} {sig} at discharge.",
        ),
        (
            "{drug} {v} {sig}.",
            "Given {drug} {v} {sig}.",
            "Continue {drug} {v} {sig}.",
            "On {drug} {v} {sig}.",
        ),
    ),
    "duration": Phrases(
        "What is the total duration of the {drug} course?",
        "The total duration of the {drug} course is",
        (
            "Plan for a total of {v} of {drug}.",
            "{drug} to be continued for a total course of {v}.",
            "The {drug} course was set at {v} in total.",
            "Total duration of {drug}: {v}.",
            "Will complete {v} of {drug} counting from the first dose.",
            "Final plan is {v} of {drug}, then stop.",
        ),
        (
            "{drug} planned for {v}, to be reassessed.",
            "Anticipate {v} of {drug} pending clinical course.",
            "Tentative {drug} course of {v}.",
        ),
    ),
    "lab": Phrases(
        "What was the {lab} at discharge?",
        "The {lab} at discharge was",
        (
            "{lab} was {v} at discharge.",
            "{lab} improved to {v} on the day of discharge.",
            "Discharge {lab} {v}.",
            "Last {lab} before discharge: {v}.",
            "On the morning of discharge, {lab} was {v}.",
            "{lab} trended to {v} by discharge.",
            "{lab} {v} on discharge labs.",
            "Left the hospital with a {lab} of {v}.",
        ),
        (
            "{lab} {v} today.",
            "AM {lab} {v}.",
            "{lab} now {v}, trending.",
            "{lab} of {v} on HD {day}.",
            "Most recent {lab} {v}.",
        ),
    ),
    "lab_in": Phrases(
        "What was the {lab} on admission?",
        "The {lab} on admission was",
        (
            "{lab} was {v} on admission.",
            "Admission {lab} {v}.",
            "Presented with a {lab} of {v}.",
            "ED labs notable for {lab} {v}.",
            "{lab} on arrival was {v}.",
            "Initial {lab}: {v}.",
            "{lab} was {v} when first checked in the ED.",
        ),
    ),
    "weight": Phrases(
        "What was the weight at discharge?",
        "The weight at discharge was",
        (
            "Discharge weight {v}.",
            "Weight was {v} at discharge.",
            "Weighed {v} on the day of discharge.",
            "Wt at d/c: {v}.",
            "New dry weight is {v}, measured at discharge.",
            "Final standing weight before leaving: {v}.",
        ),
        (
            "Weight {v} today.",
            "Wt {v} (standing).",
            "AM weight {v}.",
            "Today's weight {v}.",
        ),
    ),
    "study": Phrases(
        "What did the {study} show?",
        "The result of the {study} was",
        (
            "{study} showed {v}.",
            "{study}: {v}.",
            "{study} was notable for {v}.",
            "{study} revealed {v}.",
            "Per final read, {study} with {v}.",
            "Result of the {study}: {v}.",
            "{v} on {study}.",
        ),
        ("{study} is {v}.", "{study} was sent, {v}."),
        daily_fits_last=False,
    ),
    "event": Phrases(
        "On which hospital day was the {event}?",
        "The {event} was on hospital day",
        (
            "The {event} was on {v}.",
            "{event}: {v}.",
            "{event} took place on {v}, without complication.",
            "{event} occurred on {v}.",
            "Of note, the {event} was on {v}.",
            "{event} ({v}), uneventful.",
        ),
        (
            "{event} planned for {v}.",
            "Anticipate {event} on {v}.",
        ),
        daily_fits_last=False,
    ),
    "disposition": Phrases(
        "Where was the patient discharged to?",
        "Discharge disposition:",
        (
            "Discharged to: {v}.",
            "Disposition is {v}.",
            "Case management arranged discharge to {v}.",
            "Will be discharged to {v}, patient agrees.",
            "Discharge destination: {v}.",
            "Final dispo: {v}.",
        ),
        (
            "Dispo: likely {v}.",
            "Anticipated disposition {v}, pending PT.",
            "Planning for {v} as of today.",
        ),
    ),
    "oxygen": Phrases(
        "How much oxygen did the patient need at discharge?",
        "The oxygen requirement at discharge was",
        (
            "Oxygen requirement at discharge: {v}.",
            "Weaned to {v} by discharge.",
            "Saturating 94-96% on {v} at discharge.",
            "O2 at d/c: {v}.",
            "Ambulatory saturation 92% on {v} before discharge.",
            "Left on {v}.",
        ),
        (
            "Requiring {v}.",
            "O2: {v}.",
            "On {v} this morning, weaning as able.",
            "Satting mid 90s on {v}.",
        ),
    ),
    "followup": Phrases(
        "When should the patient follow up with {clinic}?",
        "The patient should follow up with {clinic} in",
        (
            "Follow up with {clinic} in {v}.",
            "{clinic} appointment in {v}.",
            "Needs to see {clinic} within {v}.",
            "{clinic} follow-up scheduled for {v} after discharge.",
            "Asked to return to {clinic} in {v}.",
            "F/u {clinic}: {v}.",
        ),
        (
            "Plan {clinic} follow-up in {v}.",
            "Tentative {clinic} visit in {v}.",
        ),
    ),
    "stopped": Phrases(
        "Which home medication was stopped at discharge?",
        "The home medication that was stopped is",
        (
            "{v} was stopped at discharge because of {reason}.",
            "Stopped home medication: {v} ({reason}).",
            "Home {v} discontinued given {reason}.",
            "STOP taking {v} because of {reason}.",
            "{v} should not be resumed ({reason}).",
            "We stopped home {v} due to {reason}.",
        ),
    ),
    "allergy": Phrases(
        "What is the patient allergic to?",
        "The patient is allergic to",
        (
            "Allergic to {v} ({reaction}).",
            "Allergy to {v}, which caused {reaction}.",
            "Allergy list: {v}.",
            "Avoid {v} (allergy, {reaction}).",
            "Documented allergy: {v}, with {reaction}.",
            "The patient had {reaction} after {v} and should avoid it.",
        ),
        ("Allergies: {v}.", "Allergy list reviewed: {v}."),
    ),
    "cause": Phrases(
        "What was the {matter} attributed to?",
        "The {matter} was attributed to",
        (
            "The {matter} was attributed to {v}.",
            "{matter}, felt to be due to {v}.",
            "{matter} most likely from {v}.",
            "Cause of the {matter}: {v}.",
            "{matter} in the setting of {v}.",
            "{matter} explained by {v}.",
        ),
    ),
    "code": Phrases(
        "What is the code status?",
        "The code status of the patient is",
        (
            "Code status at discharge: {v}.",
            "Code status is {v}, confirmed with the patient.",
            "Goals of care discussed: {v}.",
            "CODE: {v} (confirmed before discharge).",
            "The patient elected to be {v}.",
        ),
        (
            "Code: {v}.",
            "Code status today: {v}.",
        ),
    ),
}

SOCIAL = (
    "Lives with spouse in a two-story house.",
    "Lives alone, independent in ADLs and IADLs.",
    "Lives in senior housing with a home health aide twice weekly.",
    "Retired school bus driver.",
    "Works as a line cook.",
    "Retired machinist.",
    "Former smoker, quit ___ years ago, 20 pack-years.",
    "Never smoker.",
    "Drinks one glass of wine with dinner on weekends.",
    "No alcohol.",
    "Denies illicit drug use.",
    "Two adult children nearby, ___ is the health care proxy.",
    "Walks with a cane outdoors.",
)

FAMILY = (
    "Father died of MI at ___.",
    "Mother with hypertension and breast cancer.",
    "Sister with hypothyroidism.",
    "Brother with type 1 diabetes.",
    "No family history of early CAD or sudden cardiac death.",
    "No known history of bleeding or clotting disorders.",
    "Son with asthma.",
)

SUBJECTIVE = (
    "Slept well, no acute events overnight.",
    "Feels better today and is asking about going home.",
    "Appetite is improving, ate half of breakfast.",
    "Mild fatigue, otherwise without complaints.",
    "Up to the chair with nursing, tolerated well.",
    "Pain controlled, rated 2/10.",
    "Had some nausea in the evening, resolved with ondansetron.",
    "Family at bedside, questions answered.",
    "Ambulated in the hallway with PT.",
    "Some difficulty sleeping because of noise.",
)

ROUTINE = (
    "Nutrition: regular diet, tolerating more than half of each tray; nutrition following for supplements.",
    "Skin intact, no pressure injury on nursing skin check; heels offloaded and barrier cream applied.",
    "PT session today: transfers with minimal assist, ambulated ___ feet with a rolling walker, two rest breaks.",
    "OT evaluated: set-up assist for upper body dressing, supervision for lower body; recommends a tub bench.",
    "Peripheral IV x2 patent without erythema, last changed ___; no central access.",
    "Pharmacy reconciled the home list with the outpatient pharmacy; two refills were found overdue.",
    "Case management met with the family, reviewed benefits and left the list of agencies.",
    "Telemetry reviewed: sinus rhythm, rare PVCs, no sustained events; consider stopping monitoring.",
    "Nursing reports good oral intake, voiding without difficulty, last bowel movement yesterday.",
    "Fall precautions in place, bed alarm on overnight, non-slip socks provided.",
    "Blood cultures reviewed, no growth to date; no new microbiology overnight.",
    "Spoke with ___ (daughter) by phone, updated on the plan of care, all questions answered.",
    "Interpreter used for the visit by video; patient teaches back the plan correctly.",
    "Social work saw the patient for coping; no acute safety concerns; resources were left at the bedside.",
    "Incentive spirometer at bedside, used ten times an hour while awake with encouragement.",
    "Vaccines reviewed: influenza given ___, pneumococcal up to date, COVID booster declined today.",
    "Chaplaincy visited at the request of the patient; appreciated the company.",
    "Wound and ostomy nursing not needed at this time; will reconsult as necessary.",
    "Advance directives reviewed, a copy of the health care proxy form is in the chart.",
    "I/O over the last 24 hours reviewed and roughly even; no bladder scans needed.",
    "EKG today: normal sinus rhythm, normal axis, no ST or T wave changes compared with prior.",
    "Portable CXR: lines and tubes in standard position, no pneumothorax, no large effusion.",
    "Bowel regimen ordered standing with hold parameters; abdominal exam benign.",
    "Lipid panel and TSH from ___ reviewed, no changes needed in hospital.",
    "Speech and swallow saw the patient at the bedside, no signs of aspiration with thin liquids.",
    "Respiratory therapy: oral care and deep breathing exercises, strong cough, minimal secretions.",
    "Diabetes screening by fingerstick before meals, no correction needed overnight.",
    "DVT prophylaxis reviewed: sequential compression boots on, ambulating three times a day.",
    "Physical restraints not used; sitter discontinued; reoriented with calendar and clock.",
    "Hearing aids and glasses are at the bedside and in use during the interview.",
    "Medication education given with the large-print leaflet; pill box offered.",
    "Transport home discussed; son can drive after 3 PM; front steps have a rail on the left.",
    "Outpatient pharmacy confirmed as ___; bedside delivery of new prescriptions requested.",
    "Travel, pet and occupational history reviewed with the patient; nothing further to add.",
    "Old records from ___ requested and received, scanned into the chart.",
    "Orthostatic vital signs checked: no drop in pressure, no symptoms on standing.",
    "Daily line, drain and catheter review completed; none can be removed today.",
    "Dermatology e-consult for a benign seborrheic keratosis; no biopsy needed.",
    "Dental pain mentioned on rounds, exam without abscess, outpatient dentist recommended.",
    "Ophthalmology follow-up card given; visual acuity grossly intact at the bedside.",
    "Foot exam with monofilament done, sensation preserved, toenails trimmed by nursing.",
    "Patient watched the hospital video on hand hygiene and infection prevention.",
)

EXAM_IN = (
    ("GENERAL", "uncomfortable, in mild distress, conversant"),
    ("HEENT", "NC/AT, sclerae anicteric, MMM, oropharynx clear"),
    ("NECK", "supple, no LAD, JVP not elevated"),
    ("CARDIAC", "RRR, normal S1/S2, no murmurs, rubs or gallops"),
    ("LUNGS", "CTAB, no wheezes, rales or rhonchi"),
    ("ABDOMEN", "soft, NT/ND, normoactive bowel sounds, no HSM"),
    ("BACK", "no spinal or CVA tenderness"),
    ("RECTAL", "deferred"),
    ("EXTREMITIES", "warm, well perfused, no clubbing, cyanosis or edema"),
    ("SKIN", "no rashes or lesions"),
    ("NEURO", "A&Ox3, CN II-XII intact, strength 5/5 throughout, gait deferred"),
)

INSTRUCTIONS = (
    "It was a pleasure taking care of you at ___.",
    "Why were you in the hospital? You came in because {lay}.",
    "What did we do? You were seen by your doctors every day and treated until you were well enough to leave.",
    "Take your medicines as listed and bring the list to every visit.",
    "Call your doctor or return to the ED for fever, chest pain, trouble breathing, confusion or bleeding.",
    "Please weigh yourself every morning and call if your weight goes up by more than 3 pounds in a day.",
    "Sincerely, Your ___ Team",
)
