"""Greetings and thanks, questions about the model itself, and questions about the world."""

from __future__ import annotations

from .composed import ways as _ways

GREETING = _ways(
    "hi|hello|hey|hello there|hi there|good morning|good evening|good afternoon|hey there|"
    "hallo|hi, how are you|how are you|greetings|good day|hiya|yo|howdy|are you there|"
    "hello again|hey you|good afternoon to you|morning|evening|hi friend|hello nano|hey nano|"
    "nice to meet you|how is it going|what's up|how do you do|a good morning to you|"
    "hi there, how are you"
    "|hello, how are you|hey, good morning|hi again|good evening to you"
)
THANKS = _ways(
    "thanks|thank you|thanks a lot|thank you very much|many thanks|great, thanks|ok, thanks|"
    "thanks for your help|thx|cheers|perfect, thank you|nice, thanks|that helps, thanks|"
    "thank you so much|good, thank you|awesome|great|nice|well done|ok|okay|cool|"
    "thanks again|thanks a million|ok thank you|great, thank you|perfect|very good|excellent|"
    "that was helpful|that's what I needed|super, thanks|thank you for your help|"
    "thanks, that's all|"
    "I appreciate it|good job|alright, thanks|thanks a bunch|good work|lovely, thanks"
    "|thanks so much|thank you for the help|cool, thanks|ok, thank you"
)
ABILITY = _ways(
    "what can you do|what do you do|help|how can you help me|what are you able to do|"
    "what can I ask you|what can I ask|can you help me|how do you work|what is this|"
    "what are your tools|which tools do you have|what questions can you answer|"
    "what can I use you for|how can I use you|what are you good for|what can you tell me|"
    "which questions can I ask|what should I ask|give me some help|I need help|how does this work|"
    "what is possible here|what are your abilities|what do you know|show me what you can do|"
    "how do I use you|what kind of questions can you answer|help me"
    "|what can you help me with|how can you help|what should I ask you"
)
WHO = _ways(
    "who are you|what are you|what's your name|what is your name|who is this|are you a bot|"
    "are you an AI|which model are you|what model are you|tell me who you are|who am I talking to|"
    "introduce yourself|are you human|"
    "what is this model|what are you exactly|and who are you|do you have a name|are you a person|"
    "what kind of model are you|which model is this|are you ChatGPT|what should I call you|"
    "how are you called|your name|tell me your name|tell me about yourself"
    "|what model is this|so who are you|what are you called"
)
BYE = _ways(
    "bye|goodbye|see you|bye bye|see you later|good night|that's all|farewell|ciao|see you soon|"
    "bye for now|talk to you later|see you next week|have a nice day|until next time|good bye|"
    "I have to go|ok bye|see you around|bye then|goodbye for now|until tomorrow|cya"
    "|bye now|goodbye then|see you tomorrow"
)
OTHER = _ways(
    "what is the capital of {w}|who is {w} {w}|tell me a joke|tell me a story about {w}|"
    "write a poem about {w}|how old is {w}|what is the weather in {w}|what time is it|"
    "who won the {w} {w}|what is {n} plus {n}|translate {w} to {w}|how do I cook {w}|"
    "what do you think about {w}|why is the {w} {w}|what is the meaning of {w}|"
    "sing a song|when was {w} born|what does {w} mean in {w}|can you {w} my {w}|"
    "how many {w} are in a {w}|explain {w} to me|write an email to {w}|is {w} better than {w}|"
    "what day is today|how far is {w} from {w}|who invented the {w}|do you like {w}"
    "|what is the weather like in {w}|write a story about {w}|who was {w} {w}"
    "|what is {n} times {n}|tell me about the history of {w}"
)
